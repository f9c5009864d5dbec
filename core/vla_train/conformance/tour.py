"""Calling every hook of the phase before torch and noting all that happens, for the contract's checks to judge."""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from vla_backend.errors import BackendError, UnsupportedError
from vla_train.conformance import samples
from vla_train.conformance.subject import Subject
from vla_train.conformance.watch import watching


@dataclass
class Call:
    """One call of a hook.

    Attributes:
        hook, arguments: what was called.
        answer: what came; `None` if an exception did.
        error: the exception, or `None`; an `Unsupported` answer is none.
        again: the answer to the same question a second time.
        imported, environment: see `watch.Seen`.
        changed: arguments that were changed in place.
    """

    hook: str
    arguments: tuple[Any, ...]
    answer: Any = None
    error: Exception | None = None
    again: Any = None
    imported: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.hook}({', '.join(map(short, self.arguments))})"


def short(value: Any) -> str:
    """`value` for a message: at most about a line."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= 120 else f"{text[:117]}..."


def tour(subject: Subject) -> list[Call]:
    """Call every hook before torch with all sample arguments, twice each."""
    calls = []
    for hook, argument_lists in samples.pre_import().items():
        answering = subject.call(hook)
        for arguments in argument_lists:
            call = Call(hook, arguments)
            kept = _copy(arguments)
            started = time.perf_counter()
            with watching() as seen:
                try:
                    call.answer = _ask(answering, arguments)
                    call.again = _ask(answering, arguments)
                except Exception as error:
                    call.error = error
            call.seconds = time.perf_counter() - started
            call.imported, call.environment = seen.imported, seen.environment
            call.changed = [index for index, (now, then) in enumerate(zip(arguments, kept, strict=True)) if now != then]
            calls.append(call)
    return calls


def answers(subject: Subject) -> dict[str, str]:
    """What every hook before torch answers, as text, to be compared across processes."""
    found: dict[str, str] = {}
    for hook, argument_lists in samples.pre_import().items():
        answering = subject.call(hook)
        for number, arguments in enumerate(argument_lists):
            if hook == "env_defaults" and number:
                # With several processes it may hold a port that was free at that moment.
                continue
            with watching():
                try:
                    found[f"{hook} {number}"] = repr(_ask(answering, arguments))
                except Exception as error:
                    found[f"{hook} {number}"] = f"{type(error).__name__}: {short(error)}"
    return found


def device_untouched(device_type: str) -> bool:
    """False once torch's module of the device says that it is initialised; true where it does not say."""
    torch = sys.modules["torch"]
    module = getattr(torch, device_type, None)
    asked = getattr(module, "is_initialized", None)
    return device_type == "cpu" or asked is None or not asked()


def _ask(answering: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return answering(*arguments)
    except UnsupportedError as error:
        if not error.why:
            raise BackendError(error.what, why="it gives no reason", fix="answer Unsupported(reason, remedy)") from None
        return error


def _copy(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(argument if isinstance(argument, BaseException) else copy.deepcopy(argument) for argument in arguments)
