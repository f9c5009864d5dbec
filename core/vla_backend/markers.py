"""Markers for hook specifications and implementations, and the phases of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

import pluggy

PROJECT: Final = "vla_backend"
#: Generation of the contract as "major.minor". A plugin states the one it was written for in `BackendInfo.api`.
API: Final = "1.0"

F = TypeVar("F", bound=Callable[..., Any])

#: Marks a function of a plugin as the implementation of the hook of the same name.
hookimpl = pluggy.HookimplMarker(PROJECT)
_pluggy_spec = pluggy.HookspecMarker(PROJECT)


class Phase(IntEnum):
    """How far this process has come; a hook may be called in its own phase and in later ones."""

    PRE_IMPORT = 0
    PRE_INIT = 1
    DEVICE_READY = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Spec:
    """What the host knows about a hook besides its signature.

    Attributes:
        phase: the earliest phase in which it may be called.
        returns: type of the answer; a string names a torch type without importing torch; `None` marks an action.
        required: true if there is no generic default.
    """

    phase: Phase
    returns: type | str | None
    required: bool = False


def hookspec(phase: Phase, returns: type | str | None, required: bool = False) -> Callable[[F], F]:
    """Declare a hook: `@hookspec(Phase.PRE_INIT, returns=bool)` above a signature with a docstring."""

    def mark(function: F) -> F:
        function.vla_spec = Spec(phase, returns, required)  # type: ignore[attr-defined]
        return _pluggy_spec(firstresult=True)(function)

    return mark
