"""Number formats on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_backend import Unsupported, hookimpl
from vla_backend.defaults import precision

if TYPE_CHECKING:
    import torch


@hookimpl
def compute_dtype(requested: str) -> torch.dtype | Unsupported:
    """GPUs before compute capability 8.0 emulate bfloat16."""
    import torch

    # AMD's GPUs that torch supports all have bfloat16, and their capability numbers mean something else.
    # Asking initialises the current GPU, so that of this rank must have been taken before.
    if requested == "bf16" and torch.version.hip is None and torch.cuda.is_initialized():
        major, minor = torch.cuda.get_device_capability()
        if major < 8:
            return Unsupported(
                f"a GPU of compute capability {major}.{minor} has no bfloat16 arithmetic (8.0 and later have)",
                "set parallel.mixed_precision to fp16 or fp32",
            )
    return precision.compute_dtype(requested)


@hookimpl
def matmul_precision(level: str) -> dict[str, str]:
    """Convolutions have a TF32 switch of their own, and torch leaves it on by default."""
    import torch

    made = precision.matmul_precision(level)
    if level != "default":
        torch.backends.cudnn.allow_tf32 = level == "high"
        made["cudnn.allow_tf32"] = str(torch.backends.cudnn.allow_tf32)
    return made
