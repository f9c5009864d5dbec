"""From a hook's name to the function that answers it, so that a call in a training step costs a function call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pluggy

from vla_backend.errors import BadAnswer, PhaseError, UnsupportedError
from vla_backend.hookspecs import SPECS
from vla_backend.markers import Phase
from vla_backend.types import Unsupported


def call_for(manager: pluggy.PluginManager, backend: str, hook: str, phase: Phase) -> Callable[..., Any]:
    """The checked call of `hook`, taking the arguments of its specification in their order.

    Raises:
        PhaseError: the process has not come far enough.
    """
    spec = SPECS[hook]
    if phase < spec.phase:
        raise PhaseError(
            f"Hook '{hook}' of backend '{backend}' was called too early.",
            why=f"it belongs to the phase {spec.phase}, the process is in {phase}",
            fix="call backend.load_stack() first"
            + (", then backend.local_device(local_rank)" if spec.phase is Phase.DEVICE_READY else ""),
        )
    function, provider = _function(manager, hook)
    if spec.returns is None:
        return function
    returns = _answer_type(spec.returns)

    def check(answer: Any, *arguments: Any) -> Any:
        if isinstance(answer, returns) and answer is not None and not isinstance(answer, Unsupported):
            return answer
        raise _bad_answer(backend, hook, provider, returns, arguments, answer)

    return _checked(function, returns, check, len(getattr(manager.hook, hook).spec.argnames))


def _checked(
    function: Callable[..., Any], returns: type, check: Callable[..., Any], arguments: int
) -> Callable[..., Any]:
    """`function` with its answer checked; one version per number of arguments because `*arguments` costs as much
    as the call itself, and some of these calls are made for every tensor of every batch."""

    def none() -> Any:
        answer = function()
        return answer if type(answer) is returns else check(answer)

    def one(a: Any) -> Any:
        answer = function(a)
        return answer if type(answer) is returns else check(answer, a)

    def two(a: Any, b: Any) -> Any:
        answer = function(a, b)
        return answer if type(answer) is returns else check(answer, a, b)

    return (none, one, two)[arguments]


def providers(manager: pluggy.PluginManager, backend: str) -> dict[str, str]:
    """Who answers each hook: `backend` or "default"."""
    return {
        hook: "default" if _answering(manager, hook).plugin_name.startswith("defaults.") else backend for hook in SPECS
    }


def implementations(manager: pluggy.PluginManager, hook: str) -> list[Callable[..., Any]]:
    """Every implementation of `hook`, the one that answers first."""
    return [impl.function for impl in reversed(getattr(manager.hook, hook).get_hookimpls()) if not impl.wrapper]


def arguments(manager: pluggy.PluginManager, hook: str) -> tuple[str, ...]:
    """Names of the arguments of `hook`, in the order of its specification."""
    return tuple(getattr(manager.hook, hook).spec.argnames)


def _answering(manager: pluggy.PluginManager, hook: str) -> pluggy.HookImpl:
    """The implementation that pluggy would ask first: the last registered one, the plugin's before the default."""
    impl: pluggy.HookImpl = [impl for impl in getattr(manager.hook, hook).get_hookimpls() if not impl.wrapper][-1]
    return impl


def _function(manager: pluggy.PluginManager, hook: str) -> tuple[Callable[..., Any], str]:
    """The answering function, taking all arguments of the specification, and its plugin for messages.

    With observers on this hook the call goes through pluggy so that they see it, else straight to the function.
    """
    caller = getattr(manager.hook, hook)
    impl = _answering(manager, hook)
    provider = f"plugin '{impl.plugin_name}'"
    names = caller.spec.argnames
    if any(other.wrapper for other in caller.get_hookimpls()):
        others = {other.plugin for other in caller.get_hookimpls() if not other.wrapper and other is not impl}
        observed = manager.subset_hook_caller(hook, remove_plugins=others)
        return lambda *arguments: observed(**dict(zip(names, arguments, strict=True))), provider
    if impl.argnames == names:
        return impl.function, provider
    # An implementation may take fewer arguments than the specification offers.
    positions = [names.index(name) for name in impl.argnames]
    return lambda *arguments: impl.function(*[arguments[position] for position in positions]), provider


def _answer_type(returns: type | str | None) -> type:
    """The class an answer must have; torch's are named by a string because the contract does not import torch."""
    if isinstance(returns, str):
        module, _, name = returns.rpartition(".")
        answer: type = getattr(sys.modules[module], name)
        return answer
    return object if returns is None else returns


def _bad_answer(
    backend: str, hook: str, provider: str, returns: type, arguments: tuple[Any, ...], answer: Any
) -> UnsupportedError | BadAnswer:
    if isinstance(answer, Unsupported):
        return UnsupportedError(
            f"Backend '{backend}' does not support {hook}({', '.join(map(repr, arguments))}).",
            why=answer.reason,
            fix=answer.remedy,
        )
    return BadAnswer(
        f"Hook '{hook}' of {provider} answered {answer!r}.",
        why=f"the specification says {returns.__name__}; None is never an answer",
        fix="leave a hook unimplemented to have no opinion, answer Unsupported(reason) if the chip cannot",
    )
