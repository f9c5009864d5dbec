"""Losses and times between two log lines, kept on the device so that other steps need not wait for it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vla_train.train.errors import NonFiniteLoss
from vla_train.train.world import World


@dataclass
class Meter:
    """Collects what happened since the last log line.

    Attributes:
        names: of the losses, in order; "total_loss" last.
    """

    world: World
    folder: Path
    names: list[str] = field(default_factory=list)
    _steps: list[tuple[int, torch.Tensor, Sequence[Any]]] = field(default_factory=list)
    _data_s: float = 0.0
    _samples: int = 0
    _started: float = field(default_factory=time.perf_counter)

    def add(
        self, step: int, losses: Mapping[str, torch.Tensor], sample_ids: Sequence[Any], samples: int, data_s: float
    ) -> None:
        """Note one optimizer step of this rank; reads no value from the device."""
        if not self._steps:
            self.names = list(losses)
        self._steps.append((step, torch.stack([loss.detach().float() for loss in losses.values()]), sample_ids))
        self._data_s += data_s
        self._samples += samples

    def check(self) -> None:
        """Wait for the device and look for a loss that is not finite.

        Raises:
            NonFiniteLoss: naming step, rank, loss and samples; they are also saved in the run's folder.
        """
        if not self._steps:
            return
        values = torch.stack([values for _, values, _ in self._steps]).cpu()
        for (step, _, sample_ids), row in zip(self._steps, values.tolist(), strict=True):
            bad = {name: value for name, value in zip(self.names, row, strict=True) if not math.isfinite(value)}
            if bad:
                self._report(step, bad, sample_ids)

    def record(self) -> dict[str, float]:
        """Means since the last call, over ranks too; starts anew. Call `check` first, on every rank."""
        values = torch.stack([values for _, values, _ in self._steps]).mean(dim=0)
        means = self.world.mean(values).tolist()
        elapsed, steps = time.perf_counter() - self._started, len(self._steps)
        record = dict(zip(self.names, means, strict=True))
        record["data_time"] = self._data_s / steps
        record["model_time"] = (elapsed - self._data_s) / steps
        record["step_time"] = elapsed / steps
        record["samples_per_second"] = self._samples * self.world.world_size / elapsed
        self._steps.clear()
        self._data_s, self._samples, self._started = 0.0, 0, time.perf_counter()
        return record

    def pause(self) -> PauseClock:
        """Around work that is not training (evaluation, saving), which the times then leave out."""
        return PauseClock(self)

    def _report(self, step: int, bad: Mapping[str, float], sample_ids: Sequence[Any]) -> None:
        path = self.folder / f"nonfinite_loss_rank{self.world.rank}.json"
        found = {name: str(value) for name, value in bad.items()}
        path.write_text(
            json.dumps(
                {"step": step, "rank": self.world.rank, "losses": found, "sample_ids": list(sample_ids)}, indent=2
            )
        )
        raise NonFiniteLoss(
            f"Step {step}, rank {self.world.rank}: {', '.join(f'{k} is {v}' for k, v in found.items())}.",
            why=f"samples of this step: {', '.join(map(str, sample_ids)) or 'unknown'} (saved in {path})",
            fix="look at these samples with `vla data check`, lower the learning rate, or try parallel.mixed_precision"
            "=fp32; the newest checkpoint is from before this step and resumes the run",
        )


class PauseClock:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __enter__(self) -> None:
        self._entered = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        self._meter._started += time.perf_counter() - self._entered
