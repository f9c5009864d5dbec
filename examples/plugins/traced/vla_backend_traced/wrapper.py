"""The hooks of another plugin, each wrapped in a function that writes what was asked and answered."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from vla_backend import BackendInfo, defaults, hookimpl
from vla_backend.activation import plugin_modules
from vla_backend.discovery import find
from vla_backend.errors import BackendError
from vla_backend.hookspecs import SPECS
from vla_backend_traced.trace import record

TARGET_ENV: Final = "VLA_TRACED"
NAME: Final = "traced"


class TracedPlugin:
    """Answers as the backend named by the variable VLA_TRACED does."""

    def __init__(self) -> None:
        target = os.environ.get(TARGET_ENV, "cpu")
        if target == NAME:
            raise BackendError(
                "The traced backend cannot trace itself.",
                why=f"{TARGET_ENV}={target}",
                fix=f"set {TARGET_ENV} to the backend behind it, for example cpu",
            )
        for hook, function in _hooks(target).items():
            setattr(self, hook, hookimpl(_traced(hook, function, target)))


def _hooks(target: str) -> dict[str, Callable[..., Any]]:
    """The function that answers each hook of the backend `target`: its own, or the default."""
    found: dict[str, Callable[..., Any]] = {}
    modules = [*defaults.MODULES, *(module for _, module in plugin_modules(find(target)))]
    for module in modules:
        for name in SPECS:
            function = getattr(module, name, None)
            # Marked by `hookimpl`; anything else of that name is a helper.
            if callable(function) and getattr(function, "vla_backend_impl", None):
                found[name] = function
    return found


def _traced(hook: str, function: Callable[..., Any], target: str) -> Callable[..., Any]:
    """`function` with the same signature, recorded."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with record(hook, target, (*arguments, *named.values())) as line:
            answer = function(*arguments, **named)
            line["answer"] = answer
        # Its own priority is the other's; two backends for one chip would be ambiguous.
        return replace(answer, priority=-1) if isinstance(answer, BackendInfo) else answer

    del call.vla_backend_impl  # type: ignore[attr-defined]
    return call
