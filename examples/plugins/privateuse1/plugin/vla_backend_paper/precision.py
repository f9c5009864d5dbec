"""Number formats the chip can train in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_backend import Unsupported, hookimpl
from vla_backend.defaults import precision
from vla_backend_paper import hardware

if TYPE_CHECKING:
    import torch


@hookimpl
def compute_dtype(requested: str) -> torch.dtype | Unsupported:
    """What the device's torch module says autocast can do; float32 always."""
    import torch

    dtype = precision.compute_dtype(requested)
    module = getattr(torch, hardware.DEVICE_TYPE, None)
    supported = getattr(module, "get_amp_supported_dtype", None)
    if dtype is torch.float32 or supported is None or dtype in supported():
        return dtype
    return Unsupported(
        f"torch.{hardware.DEVICE_TYPE} lists {', '.join(map(str, supported()))} for autocast",
        "set parallel.mixed_precision=fp32",
    )
