"""Semantics of tensors on their way to the device and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vla_train.conformance.checks import Failure, Skip, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

if TYPE_CHECKING:
    import numpy as np
    import torch


@check("device")
def to_numpy_keeps_values(subject: Subject) -> str:
    """to_numpy gives the values of any tensor: bf16, fp8, requiring grad, non-contiguous, 0-d, empty."""
    cases = _numpy_cases(subject)
    for name, (tensor, expected) in cases.items():
        try:
            got = subject.ready.to_numpy(tensor)
        except Exception as error:
            raise Failure(
                f"to_numpy fails for a tensor that is {name}.",
                why=f"{type(error).__name__}: {short(error)}",
                fix="detach, copy to the host, then widen what numpy lacks; vla_backend.defaults.data.to_numpy does",
            ) from error
        _compare(name, got, expected)
    return f"{len(cases)} kinds"


def _numpy_cases(subject: Subject) -> dict[str, tuple[torch.Tensor, np.ndarray[Any, Any]]]:
    import torch

    device = subject.device
    base = torch.tensor([[1.5, -2.25, 3.0], [0.0, 65536.0, -0.015625]])
    cases: dict[str, tuple[torch.Tensor, Any]] = {
        "float32": (base.to(device), base),
        "bfloat16": (base.bfloat16().to(device), base),
        "requiring grad": ((base.clone().to(device).requires_grad_() * 1.0), base),
        "a leaf requiring grad": (base.clone().to(device).requires_grad_(), base),
        "non-contiguous": (base.to(device).t(), base.t()),
        "0-d": (base[0, 1].to(device), base[0, 1]),
        "expanded": (base[:1].to(device).expand(4, 3), base[:1].expand(4, 3)),
        "empty": (base[:0].to(device), base[:0]),
        "int64": (torch.tensor([1, -(2**40)]).to(device), torch.tensor([1, -(2**40)])),
        "bool": (torch.tensor([True, False]).to(device), torch.tensor([True, False])),
    }
    for name in ("float8_e4m3fn", "float8_e5m2"):
        small = torch.tensor([1.5, -2.0, 0.25])
        try:
            cases[name] = (small.to(getattr(torch, name)).to(device), small)
        except (RuntimeError, TypeError):
            # A chip without the format has no such tensors.
            continue
    return {name: (tensor, expected.numpy()) for name, (tensor, expected) in cases.items()}


def _compare(name: str, got: Any, expected: np.ndarray[Any, Any]) -> None:
    import numpy as np

    if not isinstance(got, np.ndarray):
        raise Failure(f"to_numpy answers a {type(got).__name__} for a tensor that is {name}.", fix="answer an ndarray")
    if got.shape != expected.shape or not np.array_equal(got, expected) or got.dtype.kind != expected.dtype.kind:
        raise Failure(
            f"to_numpy changes the values of a tensor that is {name}.",
            why=f"expected {short(expected)}, got {short(got)}",
            fix="widen bfloat16 and float8 to float32, and narrow nothing",
        )


@check("device")
def safe_dtype_narrows_nothing(subject: Subject) -> str:
    """safe_dtype names a dtype the device holds, and changes none in which the device can compute."""
    import torch

    changed = []
    for name in ("float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64"):
        dtype = getattr(torch, name)
        safe = subject.ready.safe_dtype(dtype)
        if not _holds(safe, subject.device):
            raise Failure(
                f"safe_dtype({name}) names a dtype that the device does not hold.",
                why=f"it answered {safe}, and such a tensor cannot be moved to {subject.device}",
                fix="answer the widest dtype of the same kind that the device has",
            )
        if (safe.is_floating_point, safe.is_complex) != (dtype.is_floating_point, dtype.is_complex):
            raise Failure(f"safe_dtype({name}) answers {safe}, another kind of number.", fix="keep the kind")
        if safe is not dtype:
            if _computes(dtype, subject.device):
                raise Failure(
                    f"safe_dtype narrows {name}, in which the device can compute.",
                    why=f"it answered {safe}; a product of {name} tensors on {subject.device} works",
                    fix="answer the dtype unchanged",
                )
            changed.append(f"{name} -> {str(safe).removeprefix('torch.')}")
    return ", ".join(changed) or "nothing changed"


def _holds(dtype: torch.dtype, device: torch.device) -> bool:
    import torch

    try:
        there = torch.ones(2, dtype=dtype).to(device)
        return there.dtype is dtype and torch.equal(there.cpu(), torch.ones(2, dtype=dtype))
    except (RuntimeError, TypeError):
        return False


def _computes(dtype: torch.dtype, device: torch.device) -> bool:
    import torch

    try:
        there = torch.ones(4, 4, dtype=dtype).to(device)
        made = there @ there if dtype.is_floating_point or dtype.is_complex else there + there
        return made.dtype is dtype and bool((made.cpu() == made.cpu()).all())
    except (RuntimeError, TypeError):
        return False


@check("device")
def to_device_moves_a_batch(subject: Subject) -> None:
    """to_device moves a nested batch with its values, in dtypes the device holds; what is no tensor stays."""
    import torch

    backend = subject.ready
    batch = {
        "images": torch.rand(2, 3, 4),
        "nested": [{"state": torch.arange(3.0, dtype=torch.float64)}, (torch.tensor([True]), "text")],
        "lang": ["pick up", "put down"],
        "number": 3,
    }
    moved = backend.to_device(batch)
    pairs = [
        (batch["images"], moved["images"]),
        (batch["nested"][0]["state"], moved["nested"][0]["state"]),  # type: ignore[index]
        (batch["nested"][1][0], moved["nested"][1][0]),  # type: ignore[index]
    ]
    for before, after in pairs:
        if after.device.type != backend.device_type or not torch.equal(after.cpu().to(before.dtype), before):
            raise Failure(
                "to_device changes a tensor or leaves it behind.",
                why=f"{short(before)} became {short(after)}",
                fix="see safe_dtype and pin_memory_ok, which it uses",
            )
    if moved["lang"] != batch["lang"] or moved["number"] != 3 or moved["nested"][1][1] != "text":
        raise Failure("to_device changes values that are no tensors.", why=short(moved))


@check("device")
def pinned_batch_arrives(subject: Subject) -> None:
    """Where the plugin pins, host memory really is pinned, and a batch sent without waiting arrives whole."""
    import torch
    from torch.utils.data import DataLoader

    backend = subject.ready
    if not backend.pin_memory_ok:
        raise Skip("the plugin does not pin")
    try:
        rows = torch.arange(4096.0).reshape(2, -1)
        batch = next(iter(DataLoader(rows, batch_size=2, pin_memory=True)))  # type: ignore[arg-type]
        pinned = batch.is_pinned()
    except RuntimeError as error:
        raise Failure(
            "pin_memory_ok answers true where pinning fails.",
            why=short(error),
            fix="answer False",
        ) from error
    if not pinned:
        raise Failure(
            "pin_memory_ok answers true where pinning does nothing.",
            why="a DataLoader with pin_memory=True delivers pageable memory for this device",
            fix="answer False",
        )
    moved = backend.to_device(batch)
    backend.synchronize()
    if not torch.equal(moved.cpu(), torch.arange(4096.0).reshape(2, -1)):
        raise Failure("A pinned batch arrives damaged.", fix="answer False from pin_memory_ok")
