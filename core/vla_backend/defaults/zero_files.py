"""DeepSpeed's checkpoint files: written so that ranks stay in step when one fails, read without running anything."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any, Final

from vla_backend.errors import BackendError

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


class OutOfStep(BackendError):
    """This rank left DeepSpeed's save in the middle, where the others wait for it; so it may wait for none of them."""


@contextlib.contextmanager
def write_errors_last(engine: Any) -> Iterator[None]:
    """Around `engine.save_checkpoint`: an error of writing a file is raised when the block ends, not at once.

    The other ranks wait for this one in a barrier at the end of DeepSpeed's save; leaving before it would hold them
    there until the time limit of collectives.

    Raises:
        OutOfStep: something else failed, so this rank must end.
    """
    failed: list[Exception] = []

    def later(method: Any) -> Any:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                failed.append(error)

        return call

    writers = [(engine.checkpoint_engine, "save"), (engine.checkpoint_engine, "makedirs")]
    # Scripts that rank 0 copies beside its files.
    writers += [(engine, "_copy_recovery_script")] * hasattr(engine, "_copy_recovery_script")
    for owner, name in writers:
        setattr(owner, name, later(getattr(owner, name)))
    try:
        yield
    except Exception as error:
        raise OutOfStep("DeepSpeed's save failed on this rank.", why=f"{type(error).__name__}: {error}") from error
    finally:
        for owner, name in writers:
            delattr(owner, name)
    if failed:
        raise failed[0]
