"""Errors of the model package; each message says what happened, why, and what to do."""

from __future__ import annotations

from vla_backend.errors import BackendError


class PipelineError(BackendError):
    """The video model cannot be loaded, or is not a Cosmos-Predict2.5 pipeline."""


class BatchError(BackendError, ValueError):
    """A batch does not fit the model."""


class CheckpointError(BackendError):
    """A checkpoint does not fit the model, or is not one."""
