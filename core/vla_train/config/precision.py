"""Settings that exist twice, here and in a DeepSpeed configuration or a model, must agree; this section owns them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from vla_train.config.schema import Config
from vla_train.config.typed import leaves, plain

_AUTO: Final = "auto"
_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "no": "fp32"}


def conflicts(config: Config, env: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
    """Where another setting contradicts `parallel.mixed_precision` and its neighbours, as (key, message, remedy).

    Compared are the DeepSpeed settings under `parallel.deepspeed` (if they are not in a file), every `dtype` of the
    `model:` section (the storage of trained weights), and the variable ACCELERATE_MIXED_PRECISION.
    """
    wanted = config.parallel.mixed_precision
    found: list[tuple[str, str, str]] = []
    if isinstance(config.parallel.deepspeed, Mapping):
        found += _deepspeed(config, config.parallel.deepspeed)
    for key, value in leaves(plain(config.model), "model"):
        # float32 weights suit every precision; half-precision weights only their own.
        stored = _SHORT.get(value, value) if isinstance(value, str) else None
        if key.rpartition(".")[2] == "dtype" and stored in ("bf16", "fp16") and stored != wanted:
            found.append(
                (
                    key,
                    f"stores the weights in {value} but parallel.mixed_precision is {wanted}",
                    f"set {key}=float32, or parallel.mixed_precision={stored}",
                )
            )
    inherited = (os.environ if env is None else env).get("ACCELERATE_MIXED_PRECISION")
    if inherited and _SHORT.get(inherited, inherited) != wanted:
        found.append(
            (
                "parallel.mixed_precision",
                f"is {wanted} but the variable ACCELERATE_MIXED_PRECISION says {inherited}",
                "unset the variable",
            )
        )
    return found


def _deepspeed(config: Config, given: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    wanted, train = config.parallel.mixed_precision, config.train
    found = []
    for block, key in (("bf16", "enabled"), ("fp16", "enabled")):
        value = _lookup(given, block, key)
        if isinstance(value, bool) and value != (wanted == block):
            found.append((f"{block}.{key}", value, "parallel.mixed_precision", wanted))
    stage = _lookup(given, "zero_optimization", "stage")
    strategy = config.parallel.strategy
    if stage not in (None, _AUTO) and f"zero{stage}" != strategy:
        found.append(("zero_optimization.stage", stage, "parallel.strategy", strategy))
    ours = {
        "gradient_clipping": ("train.gradient_clipping", train.gradient_clipping),
        "gradient_accumulation_steps": ("train.gradient_accumulation_steps", train.gradient_accumulation_steps),
        "train_micro_batch_size_per_gpu": ("data.batch_size", config.data.batch_size),
    }
    for key, (owner, value) in ours.items():
        if given.get(key, _AUTO) not in (_AUTO, value):
            found.append((key, given[key], owner, value))
    return [
        (
            f"parallel.deepspeed.{key}",
            f"is {value} but {owner} is {own}",
            f'remove it, or write "auto": {owner} decides',
        )
        for key, value, owner, own in found
    ]


def _lookup(given: Mapping[str, Any], block: str, key: str) -> Any:
    section = given.get(block)
    return section.get(key) if isinstance(section, Mapping) else None
