"""The error of the data path."""

from __future__ import annotations

from vla_backend.errors import BackendError


class DataError(BackendError):
    """Training data that cannot be read as asked; the message names the file or the configuration key."""
