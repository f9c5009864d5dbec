"""Watching what is computed inside `Backend.fp32_region()`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from vla_backend.markers import hookimpl
from vla_backend.testing.callers import caller

#: Told of a finding: one sentence and where.
Report = Callable[[str], None]

#: Operators that convert or move values, which is what a region begins and ends with.
_MOVES: Final = {"aten::_to_copy", "aten::copy_", "aten::_copy_from", "aten::clone", "aten::empty_like", "aten::detach"}


class RegionObserver:
    """A wrapper of the hook `fp32_region` that looks into the regions while `report` is set."""

    def __init__(self) -> None:
        self.report: Report | None = None

    @hookimpl(wrapper=True)
    def fp32_region(self) -> Generator[None, AbstractContextManager[Any], AbstractContextManager[Any]]:
        region = yield
        return region if self.report is None else watched(region, self.report)


@contextlib.contextmanager
def watched(region: AbstractContextManager[Any], report: Report) -> Iterator[None]:
    """`region`, with every operator inside that takes or gives a 16-bit float reported."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    short = (torch.bfloat16, torch.float16)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if func._schema.name not in _MOVES and not _is_view(func):
                found = next((t.dtype for t in tensors((args, kwargs, out)) if t.dtype in short), None)
                if found is not None:
                    name = func._schema.name.removeprefix("aten::")
                    report(
                        f"{caller()}: {name} is computed in {found} inside backend.fp32_region(); "
                        "cast its inputs with .float() first"
                    )
            return out

    with region, Watch():  # type: ignore[no-untyped-call]
        yield


def tensors(value: Any) -> Iterator[Any]:
    """Every tensor in nested lists, tuples and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def _is_view(func: Any) -> bool:
    """Whether the operator's answer shares memory with an argument it does not write."""
    return any(answer.alias_info is not None and not answer.alias_info.is_write for answer in func._schema.returns)
