"""Default answers for `hookspecs/train.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from vla_backend.defaults import sharded
from vla_backend.markers import hookimpl
from vla_backend.types import DeepSpeedTuning, FusedKernels, OptimizerChoice, ShardedState

if TYPE_CHECKING:
    import torch


@hookimpl
def collective_device(device: torch.device) -> torch.device:
    return device


@hookimpl
def fused_optimizer(name: str) -> OptimizerChoice:
    return OptimizerChoice(path=f"torch.optim:{name}")


@hookimpl
def attention_impl() -> str:
    return "sdpa"


@hookimpl
def fused_kernels() -> FusedKernels:
    return FusedKernels()


@hookimpl
def compile_backend() -> str:
    return "inductor"


@hookimpl
def tune_deepspeed(config: Mapping[str, Any]) -> DeepSpeedTuning:
    return DeepSpeedTuning(config=config)


@hookimpl
def zero3_safe_no_grad() -> AbstractContextManager[Any]:
    import torch

    return torch.no_grad()


@hookimpl
def save_sharded(state: ShardedState, directory: str) -> list[str]:
    return sharded.save(state, directory)


@hookimpl
def load_sharded(state: ShardedState, directory: str) -> None:
    sharded.load(state, directory)
