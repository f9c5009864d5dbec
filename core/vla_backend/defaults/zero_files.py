"""DeepSpeed's checkpoint files: written so that ranks stay in step when one fails, read without running anything."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any, Final

# What DeepSpeed pickles into its optimizer states besides tensors and plain values; neither does anything when built.
_CLASSES: Final = {
    "deepspeed.runtime.fp16.loss_scaler": ("LossScaler", "DynamicLossScaler"),
    "deepspeed.runtime.zero.config": ("ZeroStageEnum",),
    "deepspeed.utils.tensor_fragment": ("fragment_address",),
}


@contextlib.contextmanager
def weights_only() -> Iterator[None]:
    """Inside, `torch.load` refuses every class but tensors, plain values and DeepSpeed's own records.

    DeepSpeed asks for the opposite (`weights_only=False`), with which a file can run any code.
    """
    import torch

    original = torch.load

    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs | {"weights_only": True})

    known = [
        getattr(importlib.import_module(module), name, None) for module, names in _CLASSES.items() for name in names
    ]
    torch.load = load
    try:
        with torch.serialization.safe_globals([found for found in known if found is not None]):
            yield
    finally:
        torch.load = original


@contextlib.contextmanager
def write_errors_last(engine: Any) -> Iterator[None]:
    """Around `engine.save_checkpoint`: an error of writing a file is raised when the block ends, not at once.

    The other ranks wait for this one in a barrier at the end of DeepSpeed's save; leaving before it would hold them
    there until the time limit of collectives.
    """
    writer = engine.checkpoint_engine
    failed: list[Exception] = []

    def later(method: Any) -> Any:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                failed.append(error)

        return call

    replaced = ("save", "makedirs")
    for name in replaced:
        setattr(writer, name, later(getattr(writer, name)))
    try:
        yield
    finally:
        for name in replaced:
            delattr(writer, name)
    if failed:
        raise failed[0]
