"""Who decided what: every answer of a backend with its source, its reason and the answer it replaced."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from vla_backend.errors import BackendError
from vla_backend.hookspecs import MODULES, SPECS
from vla_backend.markers import Phase
from vla_backend.types import AttentionNeeds

if TYPE_CHECKING:
    from vla_backend.backend import Backend


@dataclass(frozen=True)
class Decision:
    """One decision.

    Attributes:
        subject: what was decided: the name of a hook, a configuration key or an environment variable.
        value: the outcome, a JSON value.
        source: who decided: "plugin NAME VERSION", "default", a file with its line, "environment NAME" or a flag.
        why: the reason in words.
        replaced: what would have held otherwise, a JSON value; `None` if nothing was replaced.
    """

    subject: str
    value: Any
    source: str
    why: str = ""
    replaced: Any = None


#: Hooks whose answer depends on a question, and the questions worth recording.
_QUESTIONS: Final[dict[str, tuple[tuple[Any, ...], ...]]] = {
    "compute_dtype": (("fp32",), ("bf16",), ("fp16",)),
    "fused_optimizer": (("AdamW",),),
    "attention_impl": tuple((AttentionNeeds(mask=mask),) for mask in ("none", "bool", "additive")),
}
#: Hooks that do something, or judge what they are given: who implements them is the decision.
_ACTIONS: Final = frozenset(
    name for name, spec in SPECS.items() if spec.returns is None or spec.returns is object
) | {
    "load_stack",
    "local_device",
    "apply_patches",
    "matmul_precision",
    "memory_stats",
    "rng_state",
    "safe_dtype",
    "translate_error",
    "env_defaults",
    "check_config",
    "tune_deepspeed",
    "save_sharded",
    "load_sharded",
}  # fmt: skip


def hook_decisions(backend: Backend) -> list[Decision]:
    """One decision per hook and question, in the order of the specification.

    Hooks of a phase that the process has not reached, and those that act rather than answer, are recorded by their
    implementation. Nothing is initialised and no state changes.
    """
    return [
        decision for hook, provider in backend.providers().items() for decision in _of_hook(backend, hook, provider)
    ]


def reason(backend: Backend, hook: str) -> str:
    """Why `hook` is answered as it is: the first paragraph of the implementation's docstring."""
    return _reason(hook, backend.implementations(hook)[0], backend.providers()[hook])


def _of_hook(backend: Backend, hook: str, provider: str) -> list[Decision]:
    candidate = backend.candidate
    source = "default" if provider == "default" else f"plugin {candidate.name} {candidate.version}"
    implementations = backend.implementations(hook)
    why = _reason(hook, implementations[0], provider)
    if hook in _ACTIONS or backend.phase < SPECS[hook].phase:
        names = [f"{function.__module__}.{function.__qualname__}" for function in implementations]
        return [Decision(hook, names[0], source, why, names[1] if len(names) > 1 else None)]
    made = []
    for question in _QUESTIONS.get(hook, (None,)):
        given = _standard_arguments(backend) if question is None else {}
        subject = hook if question is None else f"{hook}({', '.join(_short(part) for part in question)})"
        answers = [_answer(function, backend, hook, question, given) for function in implementations[:2]]
        replaced = answers[1] if len(answers) > 1 and answers[1] != answers[0] else None
        made.append(Decision(subject, answers[0], source, why, replaced))
    return made


def _answer(
    function: Any, backend: Backend, hook: str, question: tuple[Any, ...] | None, given: Mapping[str, Any]
) -> Any:
    names = backend.arguments(hook)
    offered = dict(zip(names, question, strict=True)) if question is not None else dict(given)
    wanted = inspect.signature(function).parameters
    try:
        return plain(function(**{name: offered[name] for name in wanted}))
    except (BackendError, ImportError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def _standard_arguments(backend: Backend) -> dict[str, Any]:
    """What the facade would ask with, for every argument that a plain question has."""
    from vla_backend.backend import available_cpus

    given: dict[str, Any] = {
        "env": os.environ,
        "cpu_count": available_cpus(),
        "machine": platform.machine(),
        "device_type": backend.device_type,
        "distribution": "beta",
    }
    if backend.phase >= Phase.DEVICE_READY:
        given["device"] = backend.device
    elif backend.phase >= Phase.PRE_INIT:
        # Without a device of this rank yet, the type says enough.
        given["device"] = backend.device_type
    return given


def _reason(hook: str, function: Any, provider: str) -> str:
    """The first paragraph of the implementation's docstring; of a default what the specification says of it."""
    doc = inspect.getdoc(function)
    if doc:
        return doc.split("\n\n")[0].replace("\n", " ")
    if provider != "default":
        return ""
    spec = inspect.getdoc(next(vars(module)[hook] for module in MODULES if hook in vars(module))) or ""
    line = next((line for line in spec.splitlines() if line.startswith("Default: ")), "")
    return line.removeprefix("Default: ")


def plain(value: Any) -> Any:
    """`value` as JSON has it; what JSON lacks as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(part) for name, part in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _short(part: Any) -> str:
    return f"mask={part.mask}" if isinstance(part, AttentionNeeds) else str(part)
