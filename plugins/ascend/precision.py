"""Number formats on NPUs.

Autocast regions in full precision switch autocast off (the default): torch_npu takes
`autocast("npu", dtype=torch.float32)` for an enabled region.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_backend import Unsupported, hookimpl
from vla_backend.defaults import precision

if TYPE_CHECKING:
    import torch


@hookimpl
def compute_dtype(requested: str) -> torch.dtype | Unsupported:
    """Atlas 300 and 910A have no bfloat16 arithmetic."""
    import torch

    # Asking initialises the NPU, so it must have been chosen for this rank before.
    if requested == "bf16" and torch.npu.is_initialized() and not torch.npu.is_bf16_supported():  # type: ignore[attr-defined]
        return Unsupported(
            "this NPU has no bfloat16 arithmetic (Atlas A2 and later have)",
            "set parallel.mixed_precision to fp16 or fp32",
        )
    return precision.compute_dtype(requested)


@hookimpl
def safe_dtype(dtype: torch.dtype) -> torch.dtype:
    """torch_npu turns float64 into float32 on some paths and keeps it, without operators, on others."""
    import torch

    return {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(dtype, dtype)


@hookimpl
def matmul_precision(level: str) -> dict[str, str]:
    """HF32, the NPU's short format for float32 products: off by default for matrices, on for convolutions."""
    import torch

    made = precision.matmul_precision(level)
    if level != "default":
        for part in ("matmul", "conv"):
            getattr(torch.npu, part).allow_hf32 = level == "high"  # type: ignore[attr-defined]  # torch_npu adds it
            made[f"{part}.allow_hf32"] = str(level == "high")
    return made
