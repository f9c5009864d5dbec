"""Training on the CPU."""

from __future__ import annotations

from typing import Final

from vla_backend import OptimizerChoice, hookimpl

#: Optimizers of torch that have a fused kernel for the CPU; their state is that of the plain ones.
_FUSED: Final = ("Adagrad", "Adam", "AdamW", "SGD")


@hookimpl
def dist_backend() -> str:
    return "gloo"


@hookimpl
def fused_optimizer(name: str) -> OptimizerChoice:
    return OptimizerChoice(f"torch.optim:{name}", {"fused": True} if name in _FUSED else {})
