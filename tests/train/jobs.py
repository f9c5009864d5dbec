"""What the ranks of `tests/train/ranks.py` do; the same functions run in the test process as one rank."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from tests.train import toy
from vla_backend import activate
from vla_train.checkpoint.layout import step_name
from vla_train.checkpoint.weights import consolidated
from vla_train.train.run import run


def train(
    folder: Path,
    rank: int,
    changes: dict[str, Any],
    model: dict[str, Any],
    continue_from: str = "",
    noise: bool = False,
    signal_rank: int = -1,
    signal_step: int = 0,
    hang_rank: int = -1,
    killed_rank: int = -1,
    killed_worker_at: int = -1,
    broken_save_rank: int = -1,
) -> dict[str, Any]:
    """One toy run.

    Args:
        continue_from: a checkpoint folder beside this job's to copy and resume.
        noise: draw from torch's generator instead of per sample.
        signal_rank, signal_step: this rank gets SIGTERM during this step.
        hang_rank, killed_rank: this rank hangs, or gets SIGKILL, in step 3.
        broken_save_rank: DeepSpeed's save raises an error on this rank that is none of its files'.
        killed_worker_at: the data worker gets SIGKILL at this index.
    """
    config = toy.config(folder, **changes)
    for key, value in model.items():
        setattr(config.model, key, value)
    if continue_from and rank == 0:
        source = folder.parent / continue_from
        shutil.copytree(source, folder / "run" / "checkpoints" / source.name)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    seen: list[list[str]] = []
    config.model.killed_worker_at = killed_worker_at

    def prepared(parts: Any) -> None:
        parts.model.noise_per_sample = not noise
        parts.model.seen = seen
        if rank == signal_rank:
            parts.model.signal_step = signal_step
        if rank == broken_save_rank:
            parts.strategy.deepspeed._save_zero_checkpoint = _broken
        parts.model.hang_step = 3 * (rank == hang_rank)
        parts.model.killed_step = 3 * (rank == killed_rank)

    outcome = run(config, toy.entry, activate("cpu"), prepared=prepared)
    return {"step": outcome.step, "seen": seen, "interrupted": outcome.interrupted}


def _broken(*args: Any) -> None:
    raise KeyError("a bug in the library")


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return consolidated(folder / "run" / "checkpoints" / step_name(step))
