"""Training on GPUs."""

from __future__ import annotations

from typing import Final

from vla_backend import OptimizerChoice, hookimpl

#: Optimizers of torch that have a fused CUDA kernel; their state is that of the plain ones.
_FUSED: Final = ("Adam", "AdamW", "SGD")


@hookimpl
def dist_backend() -> str:
    """torch's name for RCCL too."""
    return "nccl"


@hookimpl
def fused_optimizer(name: str) -> OptimizerChoice:
    return OptimizerChoice(f"torch.optim:{name}", {"fused": True} if name in _FUSED else {})
