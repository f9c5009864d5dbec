"""Fine-tuning runs for `tests.train.ranks`; the same function runs in the test process as one rank."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vla_backend import activate
from vla_train import models
from vla_train.checkpoint.layout import step_name
from vla_train.checkpoint.weights import consolidated
from vla_train.config import load_config
from vla_train.nn import Draws
from vla_train.train.run import run

DATA = Path(__file__).parents[2] / "data"
RATE, STEPS = 1e-3, 4
# Dropout draws differ between one rank and two, so losses are compared without it.
STILL = (
    "model.architecture.diffusion_model_cfg.dropout=0.0",
    "model.architecture.vl_self_attention_cfg.dropout=0.0",
)


class DrawsBySample(Draws):
    """Draws that depend on the sample and not on the rank that meets it."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: Sequence[str] = ()

    def watch(self, model: torch.nn.Module, args: tuple[dict[str, Any], ...]) -> None:
        """A forward pre-hook that remembers the batch's samples."""
        self.samples = args[0]["sample_ids"]

    def rand(self, shape: Sequence[int], *, device: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return self._rows(lambda g: torch.rand(tuple(shape[1:]), generator=g)).to(device, dtype)

    def randn(self, shape: Sequence[int], *, device: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return self._rows(lambda g: torch.randn(tuple(shape[1:]), generator=g)).to(device, dtype)

    def beta(self, alpha: float, beta: float, count: int, *, device: Any) -> torch.Tensor:
        return self._rows(lambda g: torch.rand((), generator=g)).to(device)

    def _rows(self, draw: Any) -> torch.Tensor:
        seeds = [int.from_bytes(name.encode()[-6:], "big") for name in self.samples]
        return torch.stack([draw(torch.Generator().manual_seed(seed)) for seed in seeds])


def settings_of(folder: Path) -> list[str]:
    """Those that all runs share."""
    return [
        f"model.base_model={DATA / 'groot' / 'checkpoint'}",
        f"data.datasets=[{{path: {DATA / 'lerobot' / 'tiny_libero'}, robot: new_embodiment}}]",
        f"run.root={folder}",
        "run.id=run",
        "run.loggers=[jsonl]",
        "data.num_workers=0",
        "model.action_steps=8",
        "model.sampling.shard_size=8",
        "model.sampling.shards_per_epoch=4",
        f"train.max_steps={STEPS}",
        f"train.save_interval={STEPS // 2}",
        "train.log_interval=1",
        "train.warmup_steps=0",
        f"train.learning_rate.base={RATE}",
        "parallel.mixed_precision=fp32",
    ]


def train(
    folder: Path,
    rank: int,
    settings: Sequence[str],
    alike: bool = False,
    continue_from: str = "",
    backend: str = "cpu",
) -> dict[str, Any]:
    """One run from the recorded checkpoint.

    Args:
        alike: the noise depends on the sample, not on the rank, and nothing is dropped.
        continue_from: a checkpoint folder beside this job's to copy and resume.
        backend: what to train on.
    """
    if continue_from and rank == 0:
        source = folder.parent / continue_from
        shutil.copytree(source, folder / "run" / "checkpoints" / source.name)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    made = [*settings_of(folder), f"backend={backend}", *(STILL if alike else ()), *settings]
    seen: list[list[str]] = []

    def prepared(parts: Any) -> None:
        if alike:
            draws = parts.model.draws = DrawsBySample()
            parts.model.register_forward_pre_hook(draws.watch)
        parts.model.register_forward_pre_hook(lambda _, args: seen.append(list(args[0]["sample_ids"])))

    outcome = run(load_config([], made, "groot")[0], models.find("groot"), activate(backend), prepared=prepared)
    return {"step": outcome.step, "seen": seen}


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return consolidated(folder / "run" / "checkpoints" / step_name(step))
