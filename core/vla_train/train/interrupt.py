"""SIGTERM, SIGINT and SIGHUP end a run after the current step, with a checkpoint."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

import torch

from vla_train.train.world import World

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Interrupt:
    """Catches the signals and lets all ranks agree on the step after which they stop.

    A signal may reach the ranks during different steps. Every step therefore reduces a flag, and reads the flag of the
    step before: that one has long been computed when this step has been queued, so nobody waits for the device.
    A second SIGINT interrupts at once.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.caught: signal.Signals | None = None
        self._pending: torch.Tensor | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupt:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def stop_now(self) -> bool:
        """Whether to stop after this step; the same answer on every rank. Call once per step on every rank."""
        mine = self.caught is not None
        if self._world.world_size == 1:
            return mine
        previous, self._pending = (
            self._pending,
            self._world.sum(torch.tensor([int(mine)], dtype=torch.int32, device=self._world.device)),
        )
        return previous is not None and bool(previous.item())

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = signal.Signals(number)
