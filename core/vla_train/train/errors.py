"""Mistakes in how a run is set up, and failures while it runs."""

from __future__ import annotations

from vla_backend.errors import BackendError


class TrainError(BackendError):
    """A run cannot start or go on; the message names the configuration key, or the step and rank."""


class NonFiniteLoss(TrainError):
    """A loss became NaN or infinite; the message names step, rank and samples."""


class RankLost(TrainError):
    """Another rank hangs or died; the message names it, its step and its samples."""


class DataWorkerDied(TrainError):
    """A process that loads data died; the message names step, rank and samples."""
