"""What can be wrong with a checkpoint."""

from __future__ import annotations

from vla_backend.errors import BackendError


class CheckpointError(BackendError):
    """A checkpoint cannot be written, found, read or exported; the message names the folder and the file."""
