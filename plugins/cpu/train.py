"""Training on the CPU."""

from __future__ import annotations

import os
import shutil
from typing import Final

from vla_backend import OptimizerChoice, Unsupported, hookimpl

#: Optimizers of torch that have a fused kernel for the CPU; their state is that of the plain ones.
_FUSED: Final = ("Adagrad", "Adam", "AdamW", "SGD")


@hookimpl
def dist_backend() -> str:
    """gloo comes with torch and moves host memory."""
    return "gloo"


@hookimpl
def fused_optimizer(name: str) -> OptimizerChoice:
    """torch's fused kernels, which keep the state of the plain ones."""
    return OptimizerChoice(f"torch.optim:{name}", {"fused": True} if name in _FUSED else {})


@hookimpl
def compile_backend() -> str | Unsupported:
    """torch's compiler writes C++ for the CPU and has it compiled."""
    compilers = [os.environ.get("CXX", ""), "g++", "clang++", "gcc", "clang"]
    if not any(name and shutil.which(name) for name in compilers):
        return Unsupported(
            "torch.compile needs a C++ compiler for the CPU, and none is on PATH",
            "install g++, or set train.compile=false",
        )
    return "inductor"
