"""One training step on shapes: the highest sum of everything that is alive."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from vla_backend import Backend, OptimizerChoice, activate
from vla_backend.errors import BackendError
from vla_train.config.schema import Config
from vla_train.estimate.live import LiveMemory
from vla_train.estimate.outline import AnyDraws, EstimateError, as_shapes, batch_as_shapes, outline, tensors_of
from vla_train.estimate.report import Estimate
from vla_train.estimate.shards import shards
from vla_train.estimate.values import WholeNumbers
from vla_train.models import ModelEntry
from vla_train.nn import Draws
from vla_train.train.deepspeed_config import STAGES, deepspeed_config
from vla_train.train.optimizer import build_optimizer, freeze
from vla_train.train.strategy import Replicated, autocast_inside
from vla_train.train.world import World

# fp16 takes the same memory; its loss scaler would look at values.
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.bfloat16}
#: Optimizer steps to follow: from the second on, the state of the optimizer is there.
_STEPS = 2
_PROBE = 1 << 20


@dataclass
class _Job:
    """A configuration as shapes, with what is alive before the first step."""

    config: Config
    model: nn.Module
    batch: dict[str, Any]
    live: LiveMemory
    runner: Backend
    frozen: dict[str, int]
    kept: dict[str, int]
    notes: tuple[str, ...]


def estimate(config: Config, entry: ModelEntry, backend: Backend) -> Estimate:
    """Memory of one device for `config` on `backend`; runs without its hardware.

    The step is followed on torch's fake CPU tensors: what autograd keeps is what the model's own forward makes it
    keep. Kernels of a chip may keep other tensors beside it, such as the softmax statistics of an attention.

    Raises:
        EstimateError: the model cannot be outlined, or looks at values in its forward pass.
    """
    runner = activate("cpu")
    runner.load_stack()
    runner.local_device(0)
    # Where a vendor's extension is installed, libraries would call its kernels for these tensors, too.
    runner.apply_patches()
    made = outline(config, entry, runner)
    model, strategy = made.model, config.parallel.strategy
    freeze(model, config.train.freeze)
    model.train()
    half = _DTYPES[config.parallel.mixed_precision]

    def dtype(tensor: torch.Tensor) -> torch.dtype:
        if not tensor.is_floating_point():
            return tensor.dtype
        if strategy in STAGES and half != torch.float32:
            return half  # DeepSpeed casts all that it is given.
        return torch.float32 if tensor.requires_grad else tensor.dtype

    with FakeTensorMode(allow_non_fake_inputs=True), WholeNumbers():  # type: ignore[no-untyped-call]
        live = LiveMemory()
        host = set(getattr(model, "frozen_on_host", ()))
        frozen = {}
        for name, network in _detached(model).items():
            as_shapes(network)
            network.requires_grad_(False).eval()
            size = live.note(tensors_of(network), elsewhere=name in host)
            frozen[name.rpartition(".")[2]] = size
        as_shapes(model, dtype)
        if isinstance(getattr(model, "draws", None), Draws):
            model.draws = AnyDraws()  # type: ignore[assignment]
        job = _Job(config, model, made.batch, live, runner, frozen, dict(made.kept), made.notes)
        try:
            return _sharded(job, backend, half) if strategy in STAGES else _replicated(job, backend, half)
        except BackendError:
            raise
        except Exception as error:
            raise EstimateError(
                f"The training step of '{entry.name}' cannot be followed on shapes.",
                why=f"{type(error).__name__}: {error}",
                fix="the forward pass may look at values (item(), tolist()) of the batch's whole numbers alone; draws "
                "belong in model.draws",
            ) from error


def _detached(model: nn.Module) -> Mapping[str, nn.Module]:
    detach: Callable[[], dict[str, nn.Module]] | None = getattr(model, "detach_frozen", None)
    return detach() if detach is not None else {}


def _replicated(job: _Job, backend: Backend, dtype: torch.dtype) -> Estimate:
    """The engine's own strategy, step by step."""
    config, live = job.config, job.live
    weights = live.note(tensors_of(job.model))
    trained = sum(p.numel() for p in job.model.parameters() if p.requires_grad)
    optimizer = _optimizer(job, backend)
    accumulation = config.train.gradient_accumulation_steps
    # Shapes are where they belong already, and torch cannot move parameters of this kind in place.
    job.model.__dict__["to"] = lambda *_: job.model
    strategy = Replicated(
        job.model,
        optimizer,
        job.runner,
        World(0, 0, 1, torch.device("cpu")),
        accumulation=accumulation,
        clipping=config.train.gradient_clipping,
        dtype=dtype,
    )
    # DistributedDataParallel reduces gradients in buckets of its own, as large as the gradients together.
    buckets = 4 * trained if config.parallel.processes > 1 else 0
    highest = update = activations = 0
    before = live.now
    with live:
        for _ in range(_STEPS):
            live.reset_peak()
            for number in range(min(accumulation, 2)):
                batch = batch_as_shapes(job.batch)
                last = number == min(accumulation, 2) - 1
                loss = _total(job, strategy.forward(batch))
                strategy.backward(loss, last)
                del loss
            highest, activations = live.peak, max(activations, live.peak - before)
            live.reset_peak()
            strategy.step(want_norm=False)
            update = live.peak
            del batch
            before = live.now
    state = sum(t.nbytes for values in optimizer.state.values() for t in tensors_of(values))
    extra = buckets + sum(job.kept.values())
    return _made(
        job,
        backend,
        trained=trained,
        parameters=weights,
        gradients=4 * trained,
        optimizer=state,
        communication=buckets,
        activations=activations,
        forward_backward=highest + extra,
        update=update + extra,
    )


def _sharded(job: _Job, backend: Backend, dtype: torch.dtype) -> Estimate:
    """Activations by following a step; everything else from DeepSpeed's settings."""
    config, live = job.config, job.live
    stage = STAGES[config.parallel.strategy]
    settings = backend.tune_deepspeed(deepspeed_config(config, config.parallel.processes)).config
    resident = live.now + live.note(tensors_of(job.model))
    untrained = sum(t.nbytes for t in tensors_of(job.model) if not t.requires_grad)
    optimizer = _optimizer(job, backend)
    groups = [sum(p.numel() for p in group["params"]) for group in optimizer.param_groups]
    state, working = _per_value(job, backend)
    for parameter in job.model.parameters():
        if parameter.requires_grad:
            # DeepSpeed takes every gradient away as soon as it is there.
            parameter.register_post_accumulate_grad_hook(_drop)
    autocast_inside(job.model, job.runner, dtype)
    with live:
        live.reset_peak()
        batch = batch_as_shapes(job.batch)
        losses = job.model(batch)
        torch.autograd.backward(_total(job, losses))
    activations = live.peak - resident
    width = 4 if dtype == torch.float32 else 2
    here = shards(stage, groups, config.parallel.processes, width, state, working, settings)
    stays = here.parameters + here.optimizer + untrained + sum(job.frozen.values()) + sum(job.kept.values())
    stays += here.gradients if here.gradients_stay else 0
    # Stage 2 makes its buckets for the backward pass, stage 3 keeps its own.
    in_update = 0 if stage == 2 else here.buckets + here.live
    return _made(
        job,
        backend,
        trained=sum(groups),
        parameters=here.parameters + untrained,
        gradients=here.gradients,
        optimizer=here.optimizer,
        communication=here.buckets + here.live,
        activations=activations,
        forward_backward=stays + here.live + here.buckets + activations,
        update=stays + (0 if here.gradients_stay else here.gradients) + here.update + in_update,
    )


def _drop(parameter: torch.Tensor) -> None:
    parameter.grad = None


def _made(job: _Job, backend: Backend, **sizes: int) -> Estimate:
    config = job.config
    return Estimate(
        model=config.model.name,
        backend=backend.name,
        strategy=config.parallel.strategy,
        precision=config.parallel.mixed_precision,
        processes=config.parallel.processes,
        batch_size=config.data.batch_size,
        frozen=job.frozen,
        kept=job.kept,
        notes=job.notes,
        **sizes,
    )


def _total(job: _Job, losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
    weights = job.config.train.loss_weights
    return torch.stack([loss.float() * weights.get(name, 1.0) for name, loss in losses.items()]).sum()


def _optimizer(job: _Job, backend: Backend) -> torch.optim.Optimizer:
    optimizer = build_optimizer(job.model, job.config.train.learning_rate, job.config.train.optimizer, job.runner)
    _as_on_device(optimizer, backend)
    return optimizer


def _as_on_device(optimizer: torch.optim.Optimizer, backend: Backend) -> None:
    """The implementation that the chip would get, for they need different memory.

    Plain ones update all tensors together on accelerators, on the CPU one by one.
    """
    fused = _has_fused(backend, type(optimizer).__name__)
    for group in optimizer.param_groups:
        if "foreach" in group:
            group["fused"] = bool(group.get("fused")) and fused
            group["foreach"] = not group["fused"] and backend.device_type != "cpu"


def _has_fused(backend: Backend, name: str) -> bool:
    # Asked past the phases: the chip's own packages need not be here.
    answer = backend.implementations("fused_optimizer")[0]
    try:
        choice = answer(*[name][: len(inspect.signature(answer).parameters)])
    except ImportError:
        return False
    return isinstance(choice, OptimizerChoice) and bool(choice.kwargs.get("fused"))


def _per_value(job: _Job, backend: Backend) -> tuple[float, float]:
    """Bytes per value that the optimizer keeps, and that it needs besides during a step on one flat tensor."""
    flat = nn.Parameter(torch.empty(_PROBE))
    module = nn.ParameterDict({"flat": flat})
    optimizer = build_optimizer(module, {"base": 1e-3}, job.config.train.optimizer, job.runner)
    _as_on_device(optimizer, backend)
    live = LiveMemory()
    flat.grad = torch.empty(_PROBE)
    live.note([flat, flat.grad])
    with live:
        optimizer.step()
        before = live.now
        live.reset_peak()
        optimizer.step()
    state = sum(t.nbytes for t in tensors_of(optimizer.state[flat]))
    return state / _PROBE, (live.peak - before) / _PROBE
