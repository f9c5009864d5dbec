"""Parameter groups by dotted module path, freezing, and the optimizer."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn

from vla_backend import Backend
from vla_train.config.schema import OptimizerConfig
from vla_train.train.errors import TrainError

BASE: Final = "base"
_ABSENT: Final = object()


def freeze(model: nn.Module, paths: Iterable[str]) -> int:
    """Stop training the modules at `paths`; answers the number of tensors frozen.

    Raises:
        TrainError: a path that is no module of the model.
    """
    count = 0
    for path in paths:
        for parameter in submodule(model, path, key="train.freeze").parameters():
            count += int(parameter.requires_grad)
            parameter.requires_grad_(False)
    return count


def submodule(model: nn.Module, path: str, key: str) -> nn.Module:
    """The module at a dotted path, also one held as a plain attribute.

    A part that the model has but leaves out in this configuration (its attribute is `None`) is an empty module, so
    that one configuration serves all modes of a model.

    Raises:
        TrainError: there is none; the message has the nearest name.
    """
    found: Any = model
    for part in path.split("."):
        found = getattr(found, part, _ABSENT)
        if found is None:
            return nn.Module()
    if isinstance(found, nn.Module):
        return found
    names = [name for name, _ in model.named_modules() if name]
    near = difflib.get_close_matches(path, names, n=1, cutoff=0.4)
    raise TrainError(
        f"{key} names '{path}', which is no module of the model.",
        why=f"its top-level modules are: {', '.join(name for name, _ in model.named_children())}",
        fix=f"did you mean '{near[0]}'?" if near else "use a dotted module path",
    )


def parameter_groups(model: nn.Module, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Trainable parameters grouped by the longest path in `rates` that holds them.

    Args:
        model: with `requires_grad` already set.
        rates: learning rate per dotted module path; "base" takes the parameters under no other path.

    Returns:
        Groups with `name`, `lr` and `params`, in the order of `rates` with "base" last; a group
        without trainable parameters is left out. A tensor shared by two modules is in one group, once.
        Parameters named by `model.no_weight_decay`, if it has that, form a group of their own with
        `weight_decay` 0, named after the path with "/no_decay".

    Raises:
        TrainError: "base" is missing, a path is no module, or nothing is trainable.
    """
    if BASE not in rates:
        raise TrainError("train.learning_rate has no 'base'.", fix="add train.learning_rate.base=1e-5")
    paths = [path for path in rates if path != BASE]
    for path in paths:
        submodule(model, path, key="train.learning_rate")
    exempt: frozenset[str] = frozenset(getattr(model, "no_weight_decay", ()))
    members: dict[tuple[str, bool], list[nn.Parameter]] = {
        (path, decays): [] for path in [*paths, BASE] for decays in (True, False)
    }
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            owners = [path for path in paths if name.startswith(path + ".")]
            members[max(owners, key=len, default=BASE), name not in exempt].append(parameter)
    groups = [
        {
            "name": path if decays else f"{path}/no_decay",
            "lr": float(rates[path]),
            "params": parameters,
            **({} if decays else {"weight_decay": 0.0}),
        }
        for (path, decays), parameters in members.items()
        if parameters
    ]
    if not groups:
        raise TrainError("No parameter of the model is trained.", fix="shorten train.freeze")
    return groups


def build_optimizer(
    model: nn.Module, rates: Mapping[str, float], config: OptimizerConfig, backend: Backend
) -> torch.optim.Optimizer:
    """The optimizer over `parameter_groups`; its default rate is the base rate.

    Raises:
        TrainError: torch has no such optimizer, or it does not take the arguments.
    """
    if config.fused:
        choice = backend.fused_optimizer(config.name)
        module, _, attribute = choice.path.partition(":")
        factory, extra = getattr(importlib.import_module(module), attribute), dict(choice.kwargs)
    else:
        factory, extra = getattr(torch.optim, config.name, None), {}
    if factory is None or not issubclass(factory, torch.optim.Optimizer):
        names = [
            n for n, v in vars(torch.optim).items() if isinstance(v, type) and issubclass(v, torch.optim.Optimizer)
        ]
        near = difflib.get_close_matches(config.name, names, n=1)
        raise TrainError(
            f"train.optimizer.name is '{config.name}', which torch.optim does not have.",
            fix=f"did you mean '{near[0]}'?" if near else "use e.g. AdamW",
        )
    arguments: dict[str, Any] = {
        "lr": float(rates[BASE]),
        "betas": tuple(config.betas),
        "eps": config.eps,
        "weight_decay": config.weight_decay,
    }
    # SGD and others have no betas; what the class does not know cannot apply to it.
    known = inspect.signature(factory).parameters
    arguments = {name: value for name, value in arguments.items() if name in known}
    optimizer: torch.optim.Optimizer = factory(parameter_groups(model, rates), **arguments, **extra)
    return optimizer
