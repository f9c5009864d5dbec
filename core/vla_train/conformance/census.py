"""Census: which operators of a training step the chip has, and which torch sends back to the host."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from vla_train.conformance.checks import Failure, check
from vla_train.conformance.numerics import small_batch, small_block
from vla_train.conformance.subject import Subject

#: Where the time of training goes; on the host they make a chip pointless.
HOT: Final = re.compile(
    r"_*(mm|bmm|addmm|baddbmm|linear|matmul|convolution\w*|scaled_dot_product\w*|native_layer_norm)"
)
#: Kernels made of other operators, which are looked at themselves.
_COMPOSED: Final = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
#: The functional form of an operator that writes into its result; the form with `out` needs a kernel then.
_FUNCTIONAL: Final = "CompositeExplicitAutogradNonFunctional"
_WARNING: Final = re.compile(r"fall(?:s|ing)?[ -]?back", re.IGNORECASE)
_OPERATOR: Final = re.compile(r"(?:aten|prims)::(\w+)(?:\.\w+)?")


@dataclass
class Census:
    """Attributes:
    ran: operators by their base name, with the number of calls.
    fell_back: those that ran on the host although their tensors are on the device, with how it was noticed.
    python: the tensor class that computes them, if the device is one written in Python: torch's tables of kernels
        say nothing about it then.
    """

    ran: dict[str, int] = field(default_factory=dict)
    fell_back: dict[str, str] = field(default_factory=dict)
    python: str = ""


@check("device")
def operators_run_on_the_device(subject: Subject) -> str:
    """Products, attention and normalisation of a training step run on the device; the rest is listed."""
    found = take(subject)
    if subject.ready.device_type == "cpu":
        return f"{len(found.ran)} operators; the device is the host"
    hot = sorted(name for name in found.fell_back if HOT.fullmatch(name))
    listed = ", ".join(f"{name} ({how})" for name, how in sorted(found.fell_back.items())) or "none"
    if hot:
        raise Failure(
            f"The host computes {', '.join(hot)}.",
            why=f"of {len(found.ran)} operators of a training step on '{subject.device}' fell back: {listed}",
            fix="register kernels for them under the device's dispatch key",
        )
    seen = f", computed by {found.python} in Python: only warnings and copies would tell" if found.python else ""
    return f"{len(found.ran)} operators; fell back to the host: {listed}{seen}"


def take(subject: Subject) -> Census:
    """Two training steps of a transformer block, the first to warm up, the second watched."""
    import torch

    device = subject.device
    block = small_block().to(device)
    choice = subject.ready.fused_optimizer("AdamW")
    module, _, attribute = choice.path.partition(":")
    optimizer = getattr(__import__(module, fromlist=[attribute]), attribute)(block.parameters(), **choice.kwargs)
    x, time, target = (tensor.to(device) for tensor in small_batch())
    found = Census()

    def step() -> None:
        torch.nn.functional.mse_loss(block(x, time), target).backward()
        torch.nn.utils.clip_grad_norm_(block.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with _said() as said, _counting(found, subject.ready.device_type):
        step()
        with torch.autograd.profiler.profile(use_device=None) as profile:
            step()
    for text in said:
        if _WARNING.search(text):
            for operator in _OPERATOR.findall(text):
                found.fell_back.setdefault(operator, "torch warned")
    for event in profile.function_events:
        # torch's fallback moves the inputs of an operator to the host by this operator of its own.
        if event.name == "aten::_to_cpu" and event.cpu_parent is not None:
            found.fell_back.setdefault(event.cpu_parent.name.removeprefix("aten::"), "its inputs were copied")
    return found


@contextlib.contextmanager
def _counting(found: Census, device_type: str) -> Iterator[None]:
    """Note every operator, and those that have no kernel under the device's dispatch key."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    key = torch._C._dispatch_key_for_device(device_type)

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            full = func.name()
            base = full.partition("::")[2].partition(".")[0]
            found.ran[base] = found.ran.get(base, 0) + 1
            found.python = found.python or _python_class((args, kwargs))
            if full.startswith("aten::") and not found.python and not has_kernel(full, key):
                found.fell_back.setdefault(base, f"no {key} kernel")
            return func(*args, **(kwargs or {}))

    with Mode():  # type: ignore[no-untyped-call]
        yield


def has_kernel(operator: str, key: str) -> bool:
    """Whether torch has `operator` ("aten::name.overload") for a device by itself, or composes it of others."""
    import torch

    asked = torch._C._dispatch_has_kernel_for_dispatch_key
    if any(asked(operator, name) for name in (key, *_COMPOSED)):
        return True
    if not asked(operator, _FUNCTIONAL):
        return False
    base = operator.partition("::")[2].partition(".")[0]
    overloads = getattr(torch.ops.aten, base).overloads()
    return any(asked(f"aten::{base}.{overload}", key) for overload in overloads if "out" in overload)


def _python_class(arguments: Any) -> str:
    """Name of the class of the first tensor that computes its operators in Python, "" if none does."""
    import torch
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(arguments):
        if isinstance(leaf, torch.Tensor) and type(leaf) not in (torch.Tensor, torch.nn.Parameter):
            return type(leaf).__name__
    return ""


@contextlib.contextmanager
def _said() -> Iterator[list[str]]:
    """Warnings of Python and lines that libraries write to stderr meanwhile."""
    lines: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()
            lines += [str(one.message) for one in caught]
