"""Learning rates over time: the schedules of transformers, with a floor that means the same for every group."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import SchedulerType, get_scheduler
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION

from vla_train.config.schema import SchedulerConfig
from vla_train.train.errors import TrainError

FLOORS: Final = ("group", "base")
# What the engine gives every schedule.
_GIVEN: Final = ("optimizer", "num_warmup_steps", "num_training_steps", "last_epoch", "min_lr")


def build_schedule(
    optimizer: torch.optim.Optimizer, config: SchedulerConfig, *, warmup_steps: int, max_steps: int
) -> LambdaLR:
    """The schedule of every group; step it once per optimizer step.

    transformers turns `min_lr` into a ratio of the optimizer's default rate. With `floor: base` that ratio is used
    for all groups, as upstream trainers do, so a group with ten times the base rate ends at ten times `min_lr`. With
    `floor: group` the ratio is taken of each group's own rate, so every group ends at `min_lr`.

    Raises:
        TrainError: unknown schedule or floor, or a schedule that is no function of the step.
    """
    if config.floor not in FLOORS:
        raise TrainError(f"train.scheduler.floor is '{config.floor}'.", fix=f"use one of {', '.join(FLOORS)}")
    base = float(optimizer.defaults["lr"])
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    ratios = [_lambda(config, base if config.floor == "base" else rate, warmup_steps, max_steps) for rate in rates]
    return LambdaLR(optimizer, ratios)


def fast_forward(schedule: LambdaLR, step: int) -> None:
    """Put a new schedule where `step` steps bring it; the rates are those of the configuration in force."""
    schedule.last_epoch = step
    schedule._step_count = step + 1
    factors = [factor(step) for factor in schedule.lr_lambdas]
    schedule._last_lr = [base * factor for base, factor in zip(schedule.base_lrs, factors, strict=True)]
    for group, rate in zip(schedule.optimizer.param_groups, schedule._last_lr, strict=True):
        group["lr"] = rate


def _lambda(config: SchedulerConfig, rate: float, warmup_steps: int, max_steps: int) -> Any:
    """Step -> factor of the initial rate, as transformers computes it for an optimizer with this rate."""
    try:
        kind = SchedulerType(config.name)
    except ValueError:
        raise TrainError(
            f"train.scheduler.name is '{config.name}'.",
            fix=f"use one of {', '.join(sorted(member.value for member in SchedulerType))}",
        ) from None
    extra = dict(config.arguments)
    function: Callable[..., Any] = TYPE_TO_SCHEDULER_FUNCTION[kind]  # type: ignore[assignment]
    known = inspect.signature(function).parameters
    unknown = [name for name in extra if name not in known]
    if unknown:
        free = [name for name in known if name not in _GIVEN]
        raise TrainError(
            f"train.scheduler.arguments names {', '.join(unknown)}, which '{config.name}' does not take.",
            fix=f"it takes: {', '.join(free)}" if free else "it takes none",
        )
    if "min_lr" in known and "min_lr_rate" not in extra:
        extra["min_lr"] = config.min_lr
    probe = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedule = get_scheduler(kind, probe, warmup_steps, max_steps, scheduler_specific_kwargs=extra)
    if not isinstance(schedule, LambdaLR):
        raise TrainError(
            f"train.scheduler.name '{config.name}' depends on more than the step.",
            why=f"transformers builds a {type(schedule).__name__} for it",
            fix="use a schedule such as cosine_with_min_lr or constant_with_warmup",
        )
    return schedule.lr_lambdas[0]
