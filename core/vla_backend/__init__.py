"""The contract between training code and chips.

Model and engine code talk to a typed `Backend`; a plugin answers for one chip. Importing this package imports neither
torch nor any vendor package.
"""

from __future__ import annotations

from vla_backend.activation import activate
from vla_backend.backend import Backend
from vla_backend.discovery import Candidate, candidates, choose
from vla_backend.errors import BackendError
from vla_backend.markers import API, Phase, hookimpl
from vla_backend.types import (
    AttentionNeeds,
    BackendInfo,
    ConfigIssue,
    DeepSpeedTuning,
    Explanation,
    FusedKernels,
    LoaderDefaults,
    MemoryStats,
    OptimizerChoice,
    PatchReport,
    Probe,
    ShardedState,
    Unsupported,
    VideoContext,
)

__all__ = [
    "API",
    "AttentionNeeds",
    "Backend",
    "BackendError",
    "BackendInfo",
    "Candidate",
    "ConfigIssue",
    "DeepSpeedTuning",
    "Explanation",
    "FusedKernels",
    "LoaderDefaults",
    "MemoryStats",
    "OptimizerChoice",
    "PatchReport",
    "Phase",
    "Probe",
    "ShardedState",
    "Unsupported",
    "VideoContext",
    "activate",
    "candidates",
    "choose",
    "hookimpl",
]
