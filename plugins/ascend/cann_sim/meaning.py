"""Registry of what npu:: operators mean here, and the helpers with which a meaning is written in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
_MEANINGS: dict[str, Callable[..., Any]] = {}
_LIBRARIES: list[Any] = []

# A ScalarType argument of a schema outside aten reaches a Python kernel as a number.
SCALAR_TYPES = dict(
    enumerate(
        [
            "uint8",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
            "complex32",
            "complex64",
            "complex128",
            "bool",
        ]
    )
)
SCALAR_TYPES[15] = "bfloat16"


def meaning(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _MEANINGS.update(dict.fromkeys(names, function))
        return function

    return add


def names() -> set[str]:
    """Names in the npu:: and aten:: namespaces that have a meaning here."""
    return set(_MEANINGS)


def register() -> None:
    """Register the meanings with torch's dispatcher, in the namespace in which this torch_npu defines the operator."""
    for space in ("npu", "aten"):
        library = torch.library.Library(space, "IMPL")
        _LIBRARIES.append(library)
        for name, function in _MEANINGS.items():
            if _defined(f"{space}::{name}"):
                _impl(library, name, function)


def _defined(name: str) -> bool:
    try:
        torch._C._dispatch_find_schema_or_throw(*(name.split(".") if "." in name else (name, "")))
    except RuntimeError:
        return False
    return True


def _impl(library: Any, name: str, function: Callable[..., Any]) -> None:
    try:
        library.impl(name, function, "PrivateUse1", allow_override=True)
    except TypeError:  # before torch 2.8 there is no such argument, and no such check
        library.impl(name, function, "PrivateUse1")


def host(tensor: Tensor | None) -> Any:
    return None if tensor is None else torch.ops.cann_sim.host_view(tensor)


def device(values: Any, like: Tensor) -> Any:
    if isinstance(values, (tuple, list)):
        return tuple(device(value, like) for value in values)
    return values.contiguous().to(like.device)


def gradients(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    """Gradients of function(*inputs) on the host, given the gradient of its result."""
    with torch.enable_grad():
        leaves = [host(tensor).clone().requires_grad_(True) for tensor in inputs]
        return torch.autograd.grad(function(*leaves), leaves, host(grad))
