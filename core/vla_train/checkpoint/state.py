"""What a checkpoint holds of model and optimizer, as the backend's `save_sharded` and `load_sharded` see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from vla_train.checkpoint.errors import CheckpointError

MODEL, OPTIMIZER = "model.", "optimizer."


class TrainingState:
    """Implements `vla_backend.ShardedState`.

    Tensors are named `model.<state dict name>` and `optimizer.<parameter name>.<entry>`. A tensor that the model holds
    under several names is listed under the first.

    Args:
        model: the bare model.
        optimizer: the optimizer its parameters are in.
        deepspeed: the DeepSpeed engine under ZeRO.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, world_size: int, deepspeed: Any = None
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.rank, self.world_size, self.deepspeed = rank, world_size, deepspeed

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of model and optimizer by name."""
        found = {MODEL + name: tensor for name, tensor in unique_tensors(self.model).items()}
        for name, parameter in self._optimized():
            for entry, value in self.optimizer.state.get(parameter, {}).items():
                found[f"{OPTIMIZER}{name}.{entry}"] = torch.as_tensor(value)
        return found

    def load_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors back.

        Raises:
            CheckpointError: a name is missing, unknown or has another shape.
        """
        weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
        load_weights(self.model, weights)
        state: dict[int, dict[str, torch.Tensor]] = {}
        left = {name for name in tensors if not name.startswith(MODEL)}
        for index, (name, _) in enumerate(self._optimized()):
            prefix = f"{OPTIMIZER}{name}."
            entries = {full.removeprefix(prefix): full for full in left if full.startswith(prefix)}
            entries = {entry: full for entry, full in entries.items() if "." not in entry}
            if entries:
                state[index] = {entry: tensors[full] for entry, full in entries.items()}
                left -= set(entries.values())
        if left:
            raise CheckpointError(
                f"The checkpoint has optimizer state that fits no trained parameter: {_some(left)}.",
                why="train.freeze or the model differs from the run that wrote it",
                fix="resume with that run's configuration",
            )
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})

    def _optimized(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters with their names in the optimizer's order."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        return [(names[p], p) for group in self.optimizer.param_groups for p in group["params"]]


def unique_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict without second names of the same tensor."""
    found, seen = {}, set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def load_weights(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Copy weights, by state dict name, into the model in place.

    Raises:
        CheckpointError: a name is missing or unknown, or has another shape; nothing is copied then.
    """
    own = model.state_dict()
    missing, unknown = set(unique_tensors(model)) - set(weights), set(weights) - set(own)
    shapes = {n for n in set(weights) & set(own) if weights[n].shape != own[n].shape}
    if missing or unknown or shapes:
        facts = [("missing", missing), ("unknown", unknown), ("of another shape", shapes)]
        raise CheckpointError(
            "The checkpoint does not fit the model.",
            why="; ".join(f"{len(names)} tensors {what}: {_some(names)}" for what, names in facts if names),
            fix="use the configuration of the run that wrote it (its config.yaml)",
        )
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)


def _some(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
