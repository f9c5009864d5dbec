"""Filling a DeepSpeed engine from whole tensors, for a checkpoint of another strategy or number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from vla_backend.defaults.zero_layout import MODEL, OPTIMIZER, CheckpointError, Stored

if TYPE_CHECKING:
    import torch


def fill_engine(engine: Any, stored: Mapping[str, Stored], rank: int, world_size: int) -> None:
    """Put buffers, weights, their float32 masters and the optimizer's states in place; call on every rank.

    Args:
        engine: of ZeRO 2 or 3 that has made no step.
        stored: whole tensors, named as without ZeRO.

    Raises:
        CheckpointError: the tensors do not fit the model, or the optimizer's state lies on a disk.
    """
    import torch

    zero, module = engine.optimizer, engine.module
    if getattr(zero, "swap_optimizer", False):
        raise CheckpointError(
            "A checkpoint of another strategy or number of processes cannot be loaded into states on a disk.",
            why="parallel.deepspeed.zero_optimization.offload_optimizer.device is nvme",
            fix="use device cpu until the next checkpoint, then nvme again",
        )
    parameters = dict(module.named_parameters())
    states: dict[str, dict[str, Stored]] = {}
    for full in (full for full in stored if full.startswith(OPTIMIZER)):
        name, _, entry = full.removeprefix(OPTIMIZER).rpartition(".")
        states.setdefault(name, {})[entry] = stored[full]
    _check(module, parameters, states, stored)
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if MODEL + name in stored:
                buffer.copy_(stored[MODEL + name].read())
        if hasattr(zero, "checkpoint_event_prologue"):
            zero.checkpoint_event_prologue()
        _make_states(zero, parameters, states)
        for name, parameter in parameters.items():
            value = stored[MODEL + name].read()
            _set_copy(parameter, value)
            if parameter.requires_grad:
                _set_master(parameter, value, "", rank, world_size)
                for entry, state in states.get(name, {}).items():
                    if not _counts(entry, state, parameter):
                        _set_master(parameter, state.read(), entry, rank, world_size)
        if hasattr(zero, "checkpoint_event_epilogue"):
            zero.checkpoint_event_epilogue()


def _shape(parameter: torch.nn.Parameter) -> tuple[int, ...]:
    """Of the whole parameter, also where a rank holds a share."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def _counts(entry: str, state: Stored, parameter: torch.nn.Parameter) -> bool:
    """Whether an entry is one number for a parameter, as the count of steps is, and not one per value."""
    return not state.shape and (bool(_shape(parameter)) or entry == "step")


def _check(
    module: torch.nn.Module,
    parameters: Mapping[str, torch.nn.Parameter],
    states: Iterable[str],
    stored: Mapping[str, Stored],
) -> None:
    names = {name.removeprefix(MODEL) for name in stored if name.startswith(MODEL)}
    facts = {
        "missing": set(parameters) - names,
        # A tensor with two names is among the parameters once.
        "unknown": names - set(module.state_dict(keep_vars=True)),
        "of another shape": {
            name for name, p in parameters.items() if name in names and stored[MODEL + name].shape != _shape(p)
        },
        "of the optimizer for what is not trained": {
            name for name in states if name not in parameters or not parameters[name].requires_grad
        },
    }
    if any(facts.values()):
        raise CheckpointError(
            "The checkpoint does not fit the model.",
            why="; ".join(f"{len(found)} tensors {what}, e.g. {min(found)}" for what, found in facts.items() if found),
            fix="use the configuration of the run that wrote it (its config.yaml)",
        )


def _make_states(
    zero: Any, parameters: Mapping[str, torch.nn.Parameter], states: Mapping[str, Mapping[str, Stored]]
) -> None:
    """What the optimizer would make at its first step: per flat group zeros, and the count of steps as it was."""
    import torch

    names = {id(parameter): name for name, parameter in parameters.items()}
    if hasattr(zero, "fp32_partitioned_groups_flat"):
        groups = zip(zero.fp32_partitioned_groups_flat, zero.fp16_groups, strict=True)
    else:
        groups = zip(zero.single_partition_of_fp32_groups, zero.bit16_groups, strict=True)
    on_device = any(zero.optimizer.defaults.get(option) for option in ("fused", "capturable"))
    for flat, members in groups:
        for parameter in members:
            for entry, state in states.get(names[id(parameter)], {}).items():
                known = zero.optimizer.state[flat]
                if entry in known:
                    continue
                if _counts(entry, state, parameter):
                    known[entry] = state.read().to(flat.device if on_device else "cpu")
                else:
                    known[entry] = torch.zeros_like(flat)
    if any(zero.optimizer.state.values()) and hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
        zero._lazy_init_hp_params_optimizer_state()


def _set_copy(parameter: Any, value: torch.Tensor) -> None:
    """The copy that the forward pass uses, in the precision of the job."""
    if hasattr(parameter, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(value)
    else:
        parameter.data.copy_(value)


def _set_master(parameter: Any, value: torch.Tensor, entry: str, rank: int, world_size: int) -> None:
    """This rank's part of the float32 weight, or of one entry of its optimizer state."""
    import torch
    from deepspeed import utils

    if hasattr(parameter, "ds_id"):
        # The call for whole values does not know that the last share is padded.
        share = parameter.ds_tensor.numel()
        padded = torch.nn.functional.pad(value.flatten(), (0, share * world_size - value.numel()))
        value, which = padded.narrow(0, share * rank, share), "local"
    else:
        which = "full"
    if entry:
        getattr(utils, f"safe_set_{which}_optimizer_state")(parameter, value, entry)
    else:
        getattr(utils, f"safe_set_{which}_fp32_param")(parameter, value)
