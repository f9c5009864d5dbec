"""Semantics of a running process: waiting, memory, errors, checkpoints."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from vla_backend.types import MemoryStats
from vla_train.conformance import samples
from vla_train.conformance.checks import MISTAKES, Failure, Skip, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

if TYPE_CHECKING:
    import torch

    from vla_train.checkpoint.state import TrainingState

_BYTES: Final = 64 << 20


@check("device")
def synchronize_waits(subject: Subject) -> None:
    """synchronize returns, and what was queued before it is done."""
    import torch

    x = torch.eye(256, device=subject.device)
    for _ in range(20):
        x = x @ x
    target = torch.empty(256, 256)
    with contextlib.suppress(RuntimeError):
        # Only a copy to pinned memory is queued; where nothing can be pinned the copy itself waits.
        target = target.pin_memory()
    target.copy_(x, non_blocking=True)
    subject.ready.synchronize()
    if not torch.equal(target, torch.eye(256)):
        raise Failure(
            "synchronize returns before queued work is done.",
            why="a copy to the host queued before it has not arrived",
            fix="wait for all streams of the device",
        )


@check("device")
def memory_is_counted_in_bytes(subject: Subject) -> str:
    """memory_stats counts an allocation of 64 MiB in bytes, with a peak above it and within the total."""
    import torch

    backend = subject.ready
    backend.synchronize()
    before = backend.memory_stats(reset_peak=True)
    block = torch.ones(_BYTES // 4, device=subject.device)
    backend.synchronize()
    during = backend.memory_stats()
    del block
    after = backend.memory_stats(reset_peak=True)
    if not during.allocated and not during.peak:
        raise Skip("the plugin has no figures")
    for name in ("allocated", "reserved", "peak", "total"):
        value = getattr(during, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise Failure(f"memory_stats answers {name}={value!r}.", fix="answer bytes as whole numbers")
    grown = during.allocated - before.allocated
    if not 0.5 * _BYTES <= grown <= 4 * _BYTES:
        raise Failure(
            f"memory_stats counts {grown} for an allocation of {_BYTES} bytes.",
            why=f"allocated was {before.allocated} and is {during.allocated}",
            fix="answer bytes of this process on the rank's device",
        )
    _check_peak(during, after)
    return f"{during.allocated / 2**20:.0f} of {during.total / 2**20:.0f} MiB"


def _check_peak(during: MemoryStats, after: MemoryStats) -> None:
    # The resident memory of a process is counted in batches of pages.
    if min(during.peak, after.peak) < 0.98 * during.allocated:
        raise Failure(
            "memory_stats has a peak below what was allocated.",
            why=f"{during} while a block was held, {after} after it was freed",
            fix="answer the highest allocation since the last reset_peak",
        )
    if during.total and during.allocated > during.total:
        raise Failure(
            "memory_stats counts more memory than the device has.",
            why=str(during),
            fix="answer all figures in bytes, total as the capacity of the device",
        )


@check("device")
def translate_error_never_raises(subject: Subject) -> None:
    """translate_error answers for whatever a training process may end with."""
    import torch

    raised: list[BaseException] = samples.errors()
    for broken in (
        lambda: torch.ones(2, 3) @ torch.ones(2, 3),
        lambda: torch.ones(2, device=subject.device) + torch.ones(3, device=subject.device),
        lambda: torch.ones(1).bfloat16().numpy(),
    ):
        try:
            broken()
        except Exception as error:
            raised.append(error)
    for first in raised:
        try:
            subject.ready.translate_error(first)
        except Exception as second:
            raise Failure(
                f"translate_error raises {type(second).__name__} for {type(first).__name__}.",
                why=short(second),
                fix="answer Explanation(known=False) for what it does not know; it must not hide the first error",
            ) from second


@check("device")
def sharded_checkpoint_comes_back(subject: Subject) -> str:
    """load_sharded gives model and optimizer exactly what save_sharded was given, and an incomplete one is an error."""
    backend = subject.ready
    folder = subject.folder / "sharded"
    folder.mkdir()
    saved = training_state(subject, seed=1)
    files = backend.save_sharded(saved, folder)
    missing = [name for name in files if not (folder / name).is_file()]
    if not files or missing:
        raise Failure(
            "save_sharded does not answer the files it wrote.",
            why=f"it answered {short(files)}; {', '.join(missing) or 'nothing'} is not there",
            fix="answer their names, relative to the folder: the manifest is made of them",
        )
    loaded = training_state(subject, seed=2)
    backend.load_sharded(loaded, folder)
    check_equal(loaded, saved, "The checkpoint")
    (folder / files[0]).unlink()
    other = training_state(subject, seed=3)
    try:
        backend.load_sharded(other, folder)
    except MISTAKES:
        raise
    except Exception:
        return f"{len(files)} file{'s' * (len(files) > 1)}"
    raise Failure(
        "load_sharded reads an incomplete checkpoint without an error.",
        why=f"{files[0]} was deleted",
        fix="raise when a file or a tensor is missing",
    )


def training_state(subject: Subject, seed: int, rank: int = 0, world_size: int = 1) -> TrainingState:
    """A small model after one optimizer step, on the device; `seed` makes its values."""
    import torch

    from vla_train.checkpoint.state import TrainingState

    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    model.to(subject.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(subject.device)
    optimizer.step()
    return TrainingState(model, optimizer, rank, world_size)


def check_equal(loaded: Any, saved: Any, what: str) -> None:
    """Every tensor of two states is the same, bit for bit, and on the same device."""
    import torch

    here: dict[str, torch.Tensor] = loaded.tensors()
    for name, expected in saved.tensors().items():
        got = here.get(name)
        if got is None or not torch.equal(got.cpu(), expected.cpu()) or got.dtype is not expected.dtype:
            raise Failure(
                f"{what} does not bring back '{name}'.",
                why=f"saved {short(expected.flatten()[:3].tolist())}, loaded "
                f"{'nothing' if got is None else short(got.flatten()[:3].tolist())}",
                fix="write every tensor of state.tensors() on some rank, and give all of them to state.load_tensors",
            )
