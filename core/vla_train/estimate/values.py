"""Whole numbers that keep their values while everything else is shapes only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

_INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index")
_SEQUENCES = ("aten::arange", "aten::linspace")


class WholeNumbers(TorchDispatchMode):
    """Entered inside a `FakeTensorMode`: what is computed from real tensors alone is real.

    Token ids, masks and image sizes decide about the shapes of what follows, and models read them on the host. They
    are real in the batch, and so is what is made of whole numbers only; as soon as a tensor without values takes part
    in an operation, its result has none. A mask picks as many tensors as it has true values.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        shapes = any(isinstance(tensor, FakeTensor) or tensor.is_meta for tensor in tensors)
        if shapes:
            _check_written(func, args)
            if func._schema.name in _INDEXING:
                args = (args[0], _places(args[1]), *args[2:])
        if not shapes and (tensors or _makes_numbers(func, args, kwargs)):
            with _disable_current_modes():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _makes_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a tensor made from nothing has values of interest: whole numbers, truth values, a sequence."""
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "meta":
        return False
    if func._schema.name in _SEQUENCES:
        return True
    dtype = kwargs.get("dtype")
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex


def _check_written(func: Any, args: Any) -> None:
    """A real tensor that is filled with something unknown would keep its old values."""
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.is_write and any(not isinstance(tensor, FakeTensor) for tensor in _tensors(value)):
            raise RuntimeError(f"{func} writes values that are not known into a tensor that has values")


def _places(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Indices with every real mask replaced by the positions of its true values."""
    found: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or isinstance(index, FakeTensor) or index.dtype != torch.bool:
            found.append(index)
        else:
            with _disable_current_modes():
                found += index.nonzero().unbind(1)
    return found
