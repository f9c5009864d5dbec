"""Contract, with torch: the hooks of the later phases, where the hardware is here."""

from __future__ import annotations

from typing import Any

from vla_backend import Backend
from vla_backend.errors import BackendError, UnsupportedError
from vla_backend.hookspecs import SPECS
from vla_backend.markers import Phase
from vla_train.conformance import samples
from vla_train.conformance.checks import MISTAKES, Failure, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import device_untouched, short

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@check("device")
def load_stack(subject: Subject) -> str:
    """The stack loads, says what it loaded, and touches no device."""
    backend = subject.loaded
    names = backend.load_stack()
    if not names or not all(isinstance(name, str) for name in names):
        raise Failure(
            "load_stack does not say what it imported.",
            why=f"it answered {names!r}",
            fix='answer texts like "torch 2.13.0"',
        )
    _check_untouched(backend, "load_stack")
    return ", ".join(names)


@check("device")
def hooks_before_the_device(subject: Subject) -> str:
    """Hooks of the phase pre-init answer what they should, the same twice, without initialising the device."""
    backend = subject.loaded
    hooks = samples.pre_init(backend.device_type)
    for hook, argument_lists in hooks.items():
        for arguments in argument_lists:
            first, second = (_ask(subject, hook, arguments) for _ in range(2))
            if hook not in ("zero3_safe_no_grad", "to_numpy", "apply_patches") and str(first) != str(second):
                raise Failure(
                    f"{hook} answers the same question differently.",
                    why=f"{hook}{short(arguments)} answered {short(first)}, then {short(second)}",
                    fix="let the answer depend on the arguments and the machine only",
                )
        _check_untouched(backend, hook)
    return f"{len(hooks)} hooks"


@check("device")
def precision_is_what_was_asked(subject: Subject) -> str:
    """compute_dtype answers the precision that was asked for, or why the chip cannot."""
    import torch

    said = []
    for name, dtype in _DTYPES.items():
        answer = _ask(subject, "compute_dtype", (name,))
        if isinstance(answer, UnsupportedError):
            said.append(f"no {name}")
        elif answer is not getattr(torch, dtype):
            raise Failure(
                f"compute_dtype answers another precision than the one requested, {name}.",
                why=f"it answered {answer}",
                fix="answer Unsupported(reason, remedy): the user decides what to take instead",
            )
        else:
            said.append(name)
    return ", ".join(said)


@check("device")
def default_precision_changes_nothing(subject: Subject) -> None:
    """matmul_precision("default") leaves torch's settings alone; every level answers the settings made as text."""
    import torch

    _ = subject.loaded
    before = "highest"
    torch.set_float32_matmul_precision(before)
    made = _ask(subject, "matmul_precision", ("default",))
    after = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    if made or after != before:
        raise Failure(
            'matmul_precision("default") changes settings.',
            why=f"it answered {made!r}; torch's precision was {before!r} and is {after!r}",
            fix="answer {} and change nothing: the default is torch's and the vendor's own",
        )
    _ = subject.ready
    for level in ("high", "highest"):
        made = _ask(subject, "matmul_precision", (level,))
        if not all(isinstance(text, str) for pair in made.items() for text in pair):
            raise Failure(
                "matmul_precision answers settings that are no text.",
                why=f"{level!r}: {made!r}",
                fix="answer {name: value} as strings, they go into the run's record",
            )
    torch.set_float32_matmul_precision(before)


@check("device")
def fused_optimizers_exist(subject: Subject) -> str:
    """fused_optimizer names a class that can be imported, is an optimizer and takes the arguments it comes with."""
    import importlib

    import torch

    said = []
    for name in ("AdamW", "SGD"):
        choice = subject.loaded.fused_optimizer(name)
        module, _, attribute = choice.path.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
            found([torch.nn.Parameter(torch.zeros(2, device=subject.device))], lr=1e-3, **choice.kwargs)
        except Exception as error:
            raise Failure(
                f"fused_optimizer({name!r}) names an optimizer that cannot be made.",
                why=f"it answered {choice}; {type(error).__name__}: {error}",
                fix='answer OptimizerChoice("module:Class", {arguments that it takes})',
            ) from error
        if not issubclass(found, torch.optim.Optimizer):
            raise Failure(f"{choice.path} is no torch.optim.Optimizer.", fix="answer a class that is one")
        said.append(f"{choice.path}{dict(choice.kwargs) or ''}")
    return ", ".join(said)


@check("device")
def one_device_per_rank(subject: Subject) -> str:
    """local_device answers a device of the backend's type, and refuses a rank that has none of its own."""
    import torch

    backend = subject.ready
    device, probe = backend.device, backend.probe()
    if device.type != backend.device_type:
        raise Failure(
            f"local_device answers a device of the type '{device.type}'.",
            why=f"backend_info says '{backend.device_type}'",
            fix="answer torch.device(device_type, local_rank)",
        )
    if not probe.shared and probe.device_count > 1 and device.index is None:
        raise Failure(
            "local_device answers a device without index.",
            why=f"{probe.device_count} devices are visible, it answered {device}",
            fix="answer torch.device(device_type, local_rank)",
        )
    if not probe.shared:
        beyond = probe.device_count
        try:
            other = subject.call("local_device")(backend.device_type, beyond)
        except MISTAKES:
            raise
        except Exception:
            pass
        else:
            raise Failure(
                f"local_device gives rank {beyond} a device although {beyond} are visible.",
                why=f"it answered {other}: two ranks would share one",
                fix="raise an error that says how many devices are visible",
            )
        # Asking may have made another device the current one.
        subject.call("local_device")(backend.device_type, subject.local_rank)
    torch.zeros(1, device=device)
    return str(device)


@check("device")
def hooks_with_the_device(subject: Subject) -> str:
    """Hooks of the phase device-ready answer the type that their specification says."""
    hooks = samples.device_ready(subject.device)
    for hook, argument_lists in hooks.items():
        for arguments in argument_lists:
            _ask(subject, hook, arguments)
    return f"{len(hooks)} hooks"


def _ask(subject: Subject, hook: str, arguments: tuple[Any, ...]) -> Any:
    _ = subject.ready if SPECS[hook].phase is Phase.DEVICE_READY else subject.loaded
    try:
        return subject.call(hook)(*arguments)
    except UnsupportedError as error:
        if not error.why:
            raise Failure(error.what, why="it gives no reason", fix="answer Unsupported(reason, remedy)") from None
        return error
    except BackendError:
        raise
    except Exception as error:
        raise Failure(
            f"{hook} raises {type(error).__name__}: {short(error)}.",
            why=f"asked {hook}{short(arguments)} in the phase {SPECS[hook].phase}",
            fix="a hook answers; what the chip cannot do is Unsupported(reason, remedy)",
        ) from error


def _check_untouched(backend: Backend, hook: str) -> None:
    if not device_untouched(backend.device_type):
        raise Failure(
            f"{hook} initialises the device.",
            why=f"torch's module for '{backend.device_type}' is initialised after it, and local_device was not called",
            fix="the launcher and every rank would take device 0: ask files, or wait for the phase device-ready",
        )
