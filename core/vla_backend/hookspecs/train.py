"""Distributed training, optimizers, DeepSpeed, checkpoints."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from vla_backend.markers import Phase, hookspec
from vla_backend.types import AttentionNeeds, DeepSpeedTuning, FusedKernels, OptimizerChoice, ShardedState


@hookspec(Phase.PRE_IMPORT, returns=str, required=True)
def dist_backend() -> str:
    """Name of the `torch.distributed` backend for this device.

    Called: once, when the process group is created.
    Must not: answer a library that is not installed with the vendor's packages.
    Default: none, every plugin implements it.
    """


@hookspec(Phase.DEVICE_READY, returns="torch.device")
def collective_device(device: Any) -> Any:
    """The device on which a tensor must lie to take part in a collective.

    Called: once; for reducing metrics and counts across ranks.
    Must not: answer the CPU where the backend's library moves only device memory.
    Default: the rank's device.
    """


@hookspec(Phase.PRE_INIT, returns=OptimizerChoice)
def fused_optimizer(name: str) -> OptimizerChoice:
    """The fastest implementation of the optimizer `name` ("AdamW") whose state other backends can read.

    Called: once, when the optimizer is built.
    Must not: change the update rule.
    Default: torch's own class without options.
    """


@hookspec(Phase.PRE_INIT, returns=str)
def attention_impl(needs: AttentionNeeds) -> str:
    """Name of the attention implementation, as transformers names it ("sdpa", "eager" ...), that meets `needs`.

    Called: when a model loads networks that let one choose.
    Must not: answer one that ignores a mask or a dropout it was told about.
    Default: "sdpa".
    """


@hookspec(Phase.PRE_INIT, returns=FusedKernels)
def fused_kernels() -> FusedKernels:
    """The chip's own fused operators for what models compute most.

    Called: once, after a model is built; `train.fused_kernels=false` leaves them out.
    Must not: compute in another precision than that of the inputs, or lack the backward pass.
    Default: none; models compose torch's operators.
    """


@hookspec(Phase.PRE_IMPORT, returns=str)
def compile_backend() -> str:
    """Name of the `torch.compile` backend that compiles forward and backward passes for this chip.

    Called: once, when `train.compile` is set.
    Must not: answer one that lacks what it needs to run here; answer `Unsupported` with the reason instead.
    Default: "inductor".
    """


@hookspec(Phase.PRE_IMPORT, returns=DeepSpeedTuning)
def tune_deepspeed(config: Mapping[str, Any]) -> DeepSpeedTuning:
    """Make a DeepSpeed configuration fit for the chip and say what was changed.

    Called: once, on the complete DeepSpeed configuration including the user's own settings.
    Must not: change `config` in place, the ZeRO stage, or the precision.
    Default: unchanged.
    """


@hookspec(Phase.PRE_INIT, returns=object)
def zero3_safe_no_grad(model: Any) -> AbstractContextManager[Any]:
    """A context for evaluation that may be followed by training, also under ZeRO-3.

    Called: by `Backend.evaluating(model)`, which also switches the model to eval mode and back.
    Must not: use `torch.inference_mode`, whose tensors cannot enter autograd later.
    Default: `torch.no_grad()`.
    """


@hookspec(Phase.DEVICE_READY, returns=list)
def save_sharded(state: ShardedState, directory: str) -> list[str]:
    """Write this rank's part of model and optimizer into `directory`; answer the names of the files written.

    Called: on every rank, when a checkpoint is due.
    Must not: gather the whole state on one rank.
    Default: the DeepSpeed engine's own files under ZeRO; otherwise one safetensors file per rank, each tensor once.
    """


@hookspec(Phase.DEVICE_READY, returns=None)
def load_sharded(state: ShardedState, directory: str) -> None:
    """Fill model and optimizer from what `save_sharded` wrote.

    Called: on every rank, when a run is resumed.
    Must not: leave a tensor as it was without an error.
    Default: the counterpart of the default `save_sharded`; another strategy and number of ranks may load its files.
    """
