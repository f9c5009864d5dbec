"""Values that cannot work, found without reading a file and without importing torch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from vla_train.config.precision import conflicts
from vla_train.config.schema import Config

Finding = tuple[str, str, str]
"""Key, what is wrong, what to do."""

_CHOICES = {
    "train.scheduler.floor": ("group", "base"),
    "train.matmul_precision": ("default", "high", "highest"),
    "parallel.strategy": ("ddp", "zero2", "zero3"),
    "parallel.mixed_precision": ("fp32", "bf16", "fp16"),
}
_AT_LEAST: dict[str, float] = {
    "run.seed": 0,
    "train.max_steps": 1,
    "train.warmup_steps": 0,
    "train.save_interval": 0,
    "train.keep_checkpoints": 0,
    "train.eval_interval": 0,
    "train.log_interval": 1,
    "train.gradient_accumulation_steps": 1,
    "train.scheduler.min_lr": 0,
    "train.optimizer.eps": 0,
    "train.optimizer.weight_decay": 0,
    "parallel.processes": 1,
    "parallel.dist_timeout": 1,
    "eval.episodes": 0,
    "eval.batch_size": 1,
}
_LOGGERS = ("jsonl", "tensorboard", "wandb")


def check_values(config: Config, skip: Collection[str] = ()) -> list[Finding]:
    """Every value that cannot work; sections in `skip` already have wrong types and are left out."""
    found: list[Finding] = []
    for key, allowed in _CHOICES.items():
        if _section(key) not in skip and _get(config, key) not in allowed:
            found.append((key, f"is {_get(config, key)!r}", f"use {', '.join(allowed[:-1])} or {allowed[-1]}"))
    for key, least in _AT_LEAST.items():
        if _section(key) not in skip and not _get(config, key) >= least:
            found.append((key, f"is {_get(config, key)}", f"use at least {least}"))
    if "run" not in skip:
        found += _run(config)
    if "train" not in skip:
        found += _train(config)
    # DeepSpeed's configuration repeats values of these sections, and a wrong strategy has been reported above.
    if not {"parallel", "train", "model", "data"} & set(skip) and not any(
        _section(key) == "parallel" for key, _, _ in found
    ):
        found += conflicts(config)
    if not {"parallel", "train"} & set(skip) and config.train.compile and config.parallel.strategy == "zero3":
        found.append(
            (
                "train.compile",
                "is true with parallel.strategy zero3, whose parameters are gathered between the compiled operations",
                "use zero2 or ddp, or set train.compile=false",
            )
        )
    for name in ("data", "model"):
        if name not in skip:
            found += _own_findings(name, getattr(config, name))
    return found


def _run(config: Config) -> list[Finding]:
    found: list[Finding] = []
    unknown = [logger for logger in config.run.loggers if logger not in _LOGGERS]
    if unknown:
        found.append(("run.loggers", f"does not know {', '.join(unknown)}", f"use any of {', '.join(_LOGGERS)}"))
    if not config.run.id or config.run.id in (".", "..") or "/" in config.run.id:
        found.append(("run.id", f"is {config.run.id!r}", "use the name of one folder"))
    return found


def _train(config: Config) -> list[Finding]:
    train = config.train
    found: list[Finding] = []
    if "base" not in train.learning_rate:
        found.append(("train.learning_rate", "has no 'base'", "add the rate of everything not named"))
    found += [
        (f"train.learning_rate.{path}", f"is {rate}", "use 0 or more")
        for path, rate in train.learning_rate.items()
        if not 0 <= rate < float("inf")
    ]
    if train.gradient_clipping is not None and not train.gradient_clipping > 0:
        found.append(("train.gradient_clipping", f"is {train.gradient_clipping}", "use a number above 0, or null"))
    if len(train.optimizer.betas) != 2 or not all(0 <= beta < 1 for beta in train.optimizer.betas):
        found.append(("train.optimizer.betas", f"is {train.optimizer.betas}", "use two numbers in [0, 1)"))
    return found


def _own_findings(name: str, section: Any) -> list[Finding]:
    """What a section says about itself: `problems()` lists findings, `validate()` raises a `ValueError`."""
    if hasattr(section, "problems"):
        return [(key, message, remedy) for key, message, remedy in section.problems()]
    if hasattr(section, "validate"):
        try:
            section.validate()
        except ValueError as error:
            return [(name, str(error), "")]
    return []


def _section(key: str) -> str:
    return key.partition(".")[0]


def _get(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value
