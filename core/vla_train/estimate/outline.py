"""A model and a batch as shapes only, so that models larger than this machine can be looked at."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from vla_backend import Backend
from vla_backend.errors import BackendError
from vla_train.config.schema import Config
from vla_train.models import ModelEntry
from vla_train.nn import Draws


class EstimateError(BackendError):
    """The memory of this configuration cannot be estimated here."""


@dataclass
class Outline:
    """What a model's `outline` answers.

    Attributes:
        model: as `build` gives it; weights may lie on the meta device.
        batch: as the loader gives it, `data.batch_size` samples; tensors may lie on the meta device. The values of
            whole numbers and truth values that do not are the model's to look at.
        kept: bytes on the device that stay between steps and belong to no weight, by what they are.
        notes: what was assumed.
    """

    model: nn.Module
    batch: dict[str, Any]
    kept: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class AnyDraws(Draws):
    """Random tensors by shape alone; the sampler of the Beta distribution looks at values, which shapes do not have."""

    def beta(self, alpha: float, beta: float, count: int, *, device: torch.device | str) -> torch.Tensor:
        return torch.empty(count, device=device)


def outline(config: Config, entry: ModelEntry, backend: Backend) -> Outline:
    """The model's own outline; without one the model is built and the first samples are read.

    Raises:
        EstimateError: neither is possible here.
    """
    if entry.outline:
        made: Outline = entry.call("outline")(config, backend)
        return made
    try:
        model = entry.call("build")(config, backend)
        dataset = entry.call("dataset")(config, backend.video_ctx, "train")
        wanted = range(config.data.batch_size)
        batch = entry.call("collate")([dataset[index % len(dataset)] for index in wanted])
    except Exception as error:
        raise EstimateError(
            f"The model '{entry.name}' cannot be estimated without being built, and that failed.",
            why=f"{type(error).__name__}: {error}",
            fix="make its weights and data available, or give its ModelEntry an `outline`",
        ) from error
    return Outline(model, batch, notes=("the model was built and its first samples were read",))


def as_shapes(model: nn.Module, dtype: Callable[[torch.Tensor], torch.dtype] = operator.attrgetter("dtype")) -> None:
    """Replace all parameters and buffers by ones without memory; call it inside a `FakeTensorMode`.

    Args:
        model: a tensor shared by two modules stays shared.
        dtype: the dtype that a tensor shall have.
    """
    made: dict[int, torch.Tensor] = {}

    def replaced(tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        if id(tensor) not in made:
            new: torch.Tensor = torch.empty(tensor.shape, dtype=dtype(tensor), device="cpu")
            if isinstance(tensor, nn.Parameter):
                new = nn.Parameter(new, requires_grad=tensor.requires_grad)
            made[id(tensor)] = new
        return made[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                tensors[name] = replaced(tensor)


def batch_as_shapes(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a batch of nested mappings and sequences; whole numbers keep their values if they have some."""

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not (value.is_meta or value.is_floating_point() or value.is_complex()):
                return value.clone()
            return torch.empty(value.shape, dtype=value.dtype, device="cpu")
        if isinstance(value, Mapping):
            return {key: replaced(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(replaced(inner) for inner in value)
        return value

    return {key: replaced(value) for key, value in batch.items()}


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a module or a nested batch."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_of(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors_of(inner)
