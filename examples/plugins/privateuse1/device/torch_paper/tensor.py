"""Tensors on the device, and their operators: each one runs on the host's copy and the result goes back."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from torch_paper import runtime

DEVICE = torch.device("paper", 0)
HOST = torch.device("cpu")
aten = torch.ops.aten

#: Operators that may take tensors of the host beside those of the device: copies, and indices.
_CROSS = {"aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::index", "aten::index_put", "aten::index_put_"}
#: Factories that torch makes of an empty tensor and a resizing operator, which a tensor of fixed size cannot be.
_FACTORIES = (
    "arange",
    "arange.start",
    "arange.start_step",
    "eye",
    "eye.m",
    "linspace",
    "logspace",
    "randperm",
    "randperm.generator",
    "range",
    "range.step",
    "tril_indices",
    "triu_indices",
)
_keep: list[torch.library.Library] = []  # a registration ends with its library


class _Block:
    """Counts a tensor's memory as long as the tensor lives."""

    __slots__ = ("pointer", "size")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.pointer, self.size = storage.data_ptr(), storage.nbytes()
        runtime.memory.take(self.pointer, self.size)

    def __del__(self) -> None:
        runtime.memory.release(self.pointer, self.size)


class PaperTensor(torch.Tensor):
    """A tensor of the device; `host` holds its values, views of one tensor share theirs."""

    host: torch.Tensor
    block: _Block

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> PaperTensor:
        self: PaperTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=DEVICE,
        )
        self.host, self.block = host, _Block(host.untyped_storage())
        runtime.initialize()
        return self

    # torch asks subclasses for both, and annotates its own with other signatures.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{str(self.host)[:-1]}, device='{DEVICE}')"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.name not in _CROSS:
            _check_devices(func, args, kwargs)
        asked = kwargs.get("device")
        host_args = _each(PaperTensor, _values, args)
        host_kwargs = {name: _each(PaperTensor, _values, value) for name, value in kwargs.items()}
        if asked is not None:
            host_kwargs["device"] = HOST
        out = func(*host_args, **host_kwargs)
        if asked is not None and torch.device(asked).type != DEVICE.type:
            return out
        if func is aten.copy_.default and not isinstance(args[0], PaperTensor):
            return args[0]
        target = kwargs.get("out")
        if isinstance(target, PaperTensor) and target.shape != target.host.shape:
            raise NotImplementedError(f"{func} would resize its `out`, and tensors on {DEVICE} keep their size")
        out = _each(torch.Tensor, PaperTensor, out)
        # In-place operators answer their own argument, views share memory with theirs.
        return return_and_correct_aliasing(func, args, kwargs, out)


def _each(kind: type, change: Any, value: Any) -> Any:
    """`value` with `change` applied to what is of `kind`, also inside lists and tuples: all that operators take."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_each(kind, change, part) for part in value)
    return value


def _check_devices(func: Any, args: Any, kwargs: Any) -> None:
    """Refuse to mix devices, as a chip with memory of its own would; a 0-d tensor of the host is a number."""

    def check(tensor: torch.Tensor) -> None:
        if not isinstance(tensor, PaperTensor) and tensor.dim():
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {func} got tensors on {DEVICE} and {tensor.device}"
            )

    _each(torch.Tensor, check, (*args, *kwargs.values()))


def register() -> None:
    """The kernels that torch calls without a tensor of the device at hand; all other factories use these."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    # `torch.tensor(values, device="paper")` copies below the level at which PaperTensor is asked.
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    for name in _FACTORIES:
        packet, _, overload = name.partition(".")
        library.impl(name, _on_host(getattr(getattr(aten, packet), overload or "default")), "PrivateUse1")
    _keep.append(library)


def _empty(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> PaperTensor:
    dtype = dtype or torch.get_default_dtype()
    return PaperTensor(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> PaperTensor:
    return PaperTensor(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


def _on_host(factory: Any) -> Any:
    def kernel(*args: Any, device: Any = None, **kwargs: Any) -> PaperTensor:
        return PaperTensor(factory(*args, device=HOST, **kwargs))

    return kernel


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _values(target).copy_(_values(source))
    return target


def _values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.host if isinstance(tensor, PaperTensor) else tensor
