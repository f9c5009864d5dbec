"""Training on GPUs."""

from __future__ import annotations

from typing import Final

from vla_backend import OptimizerChoice, Unsupported, hookimpl
from vla_backend.installed import package_folder

#: Optimizers of torch that have a fused CUDA kernel; their state is that of the plain ones.
_FUSED: Final = ("Adam", "AdamW", "SGD")


@hookimpl
def dist_backend() -> str:
    """torch's name for RCCL too."""
    return "nccl"


@hookimpl
def fused_optimizer(name: str) -> OptimizerChoice:
    """torch's fused kernels, which keep the state of the plain ones."""
    return OptimizerChoice(f"torch.optim:{name}", {"fused": True} if name in _FUSED else {})


@hookimpl
def compile_backend() -> str | Unsupported:
    """torch's compiler writes its GPU kernels in Triton."""
    if package_folder("triton") is None:
        return Unsupported(
            "torch.compile needs Triton for GPUs, and it is not installed",
            "install torch's build for this GPU, which brings it, or set train.compile=false",
        )
    return "inductor"
