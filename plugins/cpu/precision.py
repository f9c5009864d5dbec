"""Number formats on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_backend import Unsupported, hookimpl
from vla_backend.defaults import precision

if TYPE_CHECKING:
    import torch


@hookimpl
def compute_dtype(requested: str) -> torch.dtype | Unsupported:
    """fp16 needs loss scaling, which exists on accelerators only."""
    if requested == "fp16":
        return Unsupported(
            "fp16 training needs loss scaling, which accelerate and DeepSpeed offer on accelerators only",
            "set parallel.mixed_precision to fp32 or bf16",
        )
    return precision.compute_dtype(requested)
