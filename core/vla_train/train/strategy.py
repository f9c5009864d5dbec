"""How one optimizer step is made: replicated (one process or DDP) or sharded by DeepSpeed ZeRO.

Together with `zero.py` this is the only place that knows DDP and DeepSpeed. Both are used directly: accelerate's
`Accelerator` recognises devices from a list of its own, which a plugin for a new chip cannot extend.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vla_backend import Backend
from vla_train.train.world import World

Losses = dict[str, torch.Tensor]


class Strategy(Protocol):
    """One optimizer step over several batches.

    Attributes:
        model: the bare model; its parameters may be shards.
        deepspeed: the DeepSpeed engine, or None.
    """

    model: nn.Module
    deepspeed: Any

    def forward(self, batch: Any) -> Losses:
        """Losses of one batch that is on the device, under autocast."""

    def accumulating(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Around forward and backward of one batch; `last` is the one after which gradients are exchanged."""

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Add the gradient of `loss` / number of accumulated batches."""

    def step(self, want_norm: bool) -> torch.Tensor | float | None:
        """Clip, update, clear the gradients; the norm of the gradient before clipping where it is known or wanted."""

    def scaler_state(self) -> dict[str, Any]:
        """State of the loss scaler, JSON values; empty without one."""

    def load_scaler_state(self, state: dict[str, Any]) -> None:
        """Put back what `scaler_state` answered."""


def autocast_inside(model: nn.Module, backend: Backend, dtype: torch.dtype) -> None:
    """Let `model.forward` enter autocast by itself.

    DeepSpeed's engine turns an autocast off that was entered around it, so it has to be entered below the engine.
    Backward passes stay outside.
    """
    plain = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with backend.autocast(dtype):
            return plain(*args, **kwargs)

    model.forward = forward


def float32_masters(model: nn.Module) -> int:
    """Make every trained parameter float32; answers how many were not.

    An update of relative size 1e-3 or less is lost in bfloat16. Under ZeRO DeepSpeed makes its own copies in the
    precision of the job from these, all of one dtype, which ZeRO-3 needs.
    """
    changed = 0
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.is_floating_point() and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()
            changed += 1
    return changed


class Replicated:
    """The whole model on every rank; gradients averaged by DistributedDataParallel when there are several.

    Args:
        model: on the CPU; moved to the rank's device.
        optimizer: over the model's trained parameters.
        accumulation: batches per optimizer step.
        clipping: maximum norm of the gradient; None for none.
        dtype: of autocast; float16 brings a loss scaler.
    """

    deepspeed = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        backend: Backend,
        world: World,
        *,
        accumulation: int,
        clipping: float | None,
        dtype: torch.dtype,
    ) -> None:
        self.model = model.to(backend.device)
        self.optimizer = optimizer
        self.accumulation, self.clipping = accumulation, clipping
        autocast_inside(model, backend, dtype)
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]
        self._scaler = torch.amp.GradScaler(backend.device_type, enabled=dtype == torch.float16)
        self._ddp: DistributedDataParallel | None = None
        if world.world_size > 1:
            # The search for unused parameters walks the graph every step, so the model says when it is needed.
            unused = bool(getattr(model, "unused_parameters_possible", False))
            # Buffers are constants here; the option that says so was renamed in torch 2.13.
            known = inspect.signature(DistributedDataParallel).parameters
            name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
            options: dict[str, Any] = {name: False, "find_unused_parameters": unused}
            self._ddp = DistributedDataParallel(model, **options)

    def forward(self, batch: Any) -> Losses:
        losses: Losses = (self._ddp or self.model)(batch)
        return losses

    def accumulating(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if last or self._ddp is None else self._ddp.no_sync()

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        torch.autograd.backward(self._scaler.scale(loss / self.accumulation if self.accumulation > 1 else loss))

    def step(self, want_norm: bool) -> torch.Tensor | None:
        self._scaler.unscale_(self.optimizer)
        norm = None
        if self.clipping is not None:
            norm = nn.utils.clip_grad_norm_(self._trained, self.clipping)
        elif want_norm:
            norm = nn.utils.get_total_norm([p.grad for p in self._trained if p.grad is not None])
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def scaler_state(self) -> dict[str, Any]:
        return self._scaler.state_dict()

    def load_scaler_state(self, state: dict[str, Any]) -> None:
        if state:
            self._scaler.load_state_dict(state)
