"""From a configuration to everything the loop needs, in the one order that works."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from vla_backend import Backend, PatchReport
from vla_train.checkpoint.layout import DECISIONS, write_json
from vla_train.config.schema import Config
from vla_train.data.loader import TrainLoader, build_loader
from vla_train.ledger import complete
from vla_train.models import ModelEntry
from vla_train.nn.kernels import use_kernels
from vla_train.train.decisions import versions
from vla_train.train.deepspeed_config import STAGES, deepspeed_config
from vla_train.train.errors import TrainError
from vla_train.train.optimizer import build_optimizer, freeze
from vla_train.train.schedule import build_schedule
from vla_train.train.strategy import Replicated, Strategy, float32_masters
from vla_train.train.world import World
from vla_train.train.zero import Zero

STATISTICS = "dataset_statistics.json"


@dataclass
class Parts:
    """What a run is made of; `decisions` says what was chosen on the way."""

    config: Config
    entry: ModelEntry
    backend: Backend
    world: World
    folder: Path
    model: nn.Module
    strategy: Strategy
    optimizer: torch.optim.Optimizer
    scheduler: LambdaLR
    loader: TrainLoader
    decisions: dict[str, Any] = field(default_factory=dict)


def set_up(
    config: Config,
    entry: ModelEntry,
    backend: Backend,
    world: World,
    *,
    start_position: Mapping[str, int] | None = None,
    patches: Sequence[PatchReport] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Parts:
    """Build model, data, optimizer, schedule and strategy.

    Args:
        config: complete and checked.
        entry: the model.
        backend: device-ready; the process group has been joined.
        start_position: of the data, out of a checkpoint.
        patches: what the backend patched, for the record.
        say: told what was decided.

    Raises:
        BackendError: what cannot work, naming the configuration key.
    """
    folder = Path(config.run.root) / config.run.id
    folder.mkdir(parents=True, exist_ok=True)
    decisions: dict[str, Any] = {
        "backend": backend.name,
        "device": str(backend.device),
        "providers": backend.providers(),
        "patches": [asdict(patch) for patch in patches],
        "rewrites": [asdict(rewrite) for rewrite in backend.rewrites],
        "versions": versions(),
        "strategy": config.parallel.strategy,
        "processes": world.world_size,
        "matmul_precision": backend.matmul_precision(config.train.matmul_precision),
    }
    dtype = backend.compute_dtype(config.parallel.mixed_precision)
    decisions["autocast"] = str(dtype)

    # The same weights on every rank, other draws on each.
    seed_everything(config.run.seed)
    model = build_model(config, entry, backend, decisions)
    dataset = entry.call("dataset")(config, backend.video_ctx, "train")
    loader = build_loader(dataset, entry.call("collate"), config, backend, world.rank, world.world_size, start_position)
    if world.is_main and hasattr(dataset, "statistics"):
        write_json(folder / STATISTICS, dataset.statistics)
    model.train()
    optimizer = build_optimizer(model, config.train.learning_rate, config.train.optimizer, backend)
    decisions["optimizer"] = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    decisions["groups"] = {
        group["name"]: {"tensors": len(group["params"]), "values": sum(p.numel() for p in group["params"])}
        for group in optimizer.param_groups
    }
    scheduler = build_schedule(
        optimizer, config.train.scheduler, warmup_steps=config.train.warmup_steps, max_steps=config.train.max_steps
    )
    strategy = build_strategy(config, model, optimizer, backend, world, dtype, decisions)
    for change in decisions.get("deepspeed_changes", ()):
        say(f"DeepSpeed: {change}")
    seed_everything(config.run.seed + world.rank)
    if world.is_main:
        write_json(folder / DECISIONS, complete(folder, backend, decisions))
    return Parts(config, entry, backend, world, folder, model, strategy, optimizer, scheduler, loader, decisions)


def build_model(config: Config, entry: ModelEntry, backend: Backend, decisions: dict[str, Any]) -> nn.Module:
    """The model with its start weights; frozen networks detached and placed, the rest still on the CPU."""
    model: nn.Module = entry.call("build")(config, backend)
    train = config.train
    if train.pretrained_checkpoint:
        entry.call("import_checkpoint")(model, train.pretrained_checkpoint, list(train.reload_modules))
        decisions["pretrained"] = train.pretrained_checkpoint
    freeze(model, train.freeze)
    if train.fused_kernels:
        decisions["fused_kernels"] = use_kernels(model, backend.fused_kernels)
    if train.compile:
        decisions["compile_backend"] = compile_regions(model, backend)
    decisions["frozen"] = place_frozen(model, backend)
    decisions["made_float32"] = float32_masters(model)
    return model


def compile_regions(model: nn.Module, backend: Backend) -> str:
    """Compile in place the modules that `model.compiled_regions()` lists; answers the compiler's name.

    Whole models branch on their batch and draw random numbers, which compilers cut into pieces; repeated blocks are
    compiled once for all of them. Weights, their names and the results' meaning stay.

    Raises:
        TrainError: the model lists none.
        UnsupportedError: the chip has no compiler here.
    """
    if not hasattr(model, "compiled_regions"):
        raise TrainError("train.compile is true, but this model has no parts to compile.", fix="train.compile=false")
    name = backend.compile_backend
    for region in model.compiled_regions():  # type: ignore[operator]
        region.compile(backend=name)
    return name


def place_frozen(model: nn.Module, backend: Backend) -> dict[str, str]:
    """Take the networks of `model.frozen()` out of the model and put each on its device, in its own dtype.

    They get no gradient and no optimizer state, ZeRO does not see them, and no strategy writes them into checkpoints.
    Those named in `model.frozen_on_host` stay on the host.
    """
    if not hasattr(model, "detach_frozen"):
        return {}
    host = set(getattr(model, "frozen_on_host", ()))
    placed = {}
    detach: Callable[[], dict[str, nn.Module]] = model.detach_frozen  # type: ignore[assignment]
    for name, network in detach().items():
        device = torch.device("cpu") if name in host else backend.device
        network.requires_grad_(False).eval().to(device)
        placed[name] = str(device)
    return placed


def build_strategy(
    config: Config,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    backend: Backend,
    world: World,
    dtype: torch.dtype,
    decisions: dict[str, Any],
) -> Strategy:
    """Replicated for "ddp", DeepSpeed for "zero2" and "zero3"."""
    if config.parallel.strategy not in STAGES:
        return Replicated(
            model,
            optimizer,
            backend,
            world,
            accumulation=config.train.gradient_accumulation_steps,
            clipping=config.train.gradient_clipping,
            dtype=dtype,
        )
    tuning = backend.tune_deepspeed(deepspeed_config(config, world.world_size))
    decisions["deepspeed"] = json.loads(json.dumps(tuning.config))
    decisions["deepspeed_changes"] = list(tuning.changes)
    return Zero(model, optimizer, backend, settings=tuning.config, dtype=dtype, timeout_s=config.parallel.dist_timeout)


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
