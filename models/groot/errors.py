"""The errors of GR00T: what went wrong, why, and what to do."""

from __future__ import annotations

from vla_backend.errors import BackendError


class GrootError(BackendError):
    """Base of the errors of this package."""


class ConfigError(GrootError):
    """A setting that cannot work."""


class CheckpointError(GrootError):
    """A checkpoint that cannot be read, or does not fit the model."""


class BackboneError(GrootError):
    """The files of the vision-language backbone cannot be had."""


class EmbodimentError(GrootError):
    """An unknown embodiment tag, or one without the settings asked for."""


class ProcessorError(GrootError):
    """Observations, states or actions that do not fit the embodiment."""


class BatchError(GrootError):
    """A batch that does not fit the model."""
