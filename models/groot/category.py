"""Layers with one set of weights per embodiment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from vla_groot.errors import BatchError
from vla_train.nn import sinusoidal_time


class Embodiments:
    """Which samples of a batch belong to which embodiment.

    The weights of an embodiment are used once for all its samples; gathering them per sample, as `W[ids]`, would copy
    the whole weight once for every sample.

    Args:
        ids: embodiment of every sample, a tensor (B,) or a list; a list spares a device the transfer back.
        device: where the activations are.
        slots: number of embodiments the model has.

    Raises:
        BatchError: an id is out of range.
    """

    def __init__(self, ids: torch.Tensor | Sequence[int], device: torch.device, slots: int) -> None:
        listed = ids.tolist() if isinstance(ids, torch.Tensor) else list(ids)
        wrong = sorted({number for number in listed if not 0 <= number < slots})
        if wrong:
            raise BatchError(
                f"Embodiment id {wrong[0]} is not one of the model's {slots}.",
                why="embodiment_id picks a slot of the embodiment-specific layers",
                fix="use an id below max_num_embodiments; embodiment_id.json of the checkpoint lists them",
            )
        self.size = len(listed)
        members: dict[int, list[int]] = {}
        for row, number in enumerate(listed):
            members.setdefault(number, []).append(row)
        self.single = next(iter(members)) if len(members) == 1 else None
        self.groups = {number: torch.tensor(rows, device=device) for number, rows in members.items()}
        order = torch.cat(list(self.groups.values())) if self.groups else torch.empty(0, dtype=torch.long)
        self.back = order.argsort()


class CategoryLinear(nn.Module):
    """x W[e] + b[e] with the weights of each sample's embodiment e; W is (slots, in, out), not transposed."""

    def __init__(self, slots: int, input_dim: int, output_dim: int) -> None:
        super().__init__()
        # Filled after registration: a model built without memory has swapped the tensor by then.
        self.W = nn.Parameter(torch.empty(slots, input_dim, output_dim))
        self.b = nn.Parameter(torch.empty(slots, output_dim))
        nn.init.normal_(self.W, std=0.02)
        nn.init.zeros_(self.b)

    def forward(self, x: torch.Tensor, embodiments: Embodiments) -> torch.Tensor:
        """x (B, T, in) -> (B, T, out), in the dtype of `x`."""
        if embodiments.single is not None:
            return self._product(x, embodiments.single)
        parts = [self._product(x[rows], number) for number, rows in embodiments.groups.items()]
        return torch.cat(parts)[embodiments.back]

    def _product(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return functional.linear(x, self.W[number].to(x.dtype).T, self.b[number].to(x.dtype))


class CategoryMLP(nn.Module):
    """Two `CategoryLinear` with a ReLU between: encodes the state and decodes actions."""

    def __init__(self, slots: int, input_dim: int, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.layer1 = CategoryLinear(slots, input_dim, hidden_dim)
        self.layer2 = CategoryLinear(slots, hidden_dim, output_dim)

    def forward(self, x: torch.Tensor, embodiments: Embodiments) -> torch.Tensor:
        return self.layer2(functional.relu(self.layer1(x, embodiments)), embodiments)


class CategoryActionEncoder(nn.Module):
    """Noisy actions and their time bucket -> tokens."""

    def __init__(self, slots: int, action_dim: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.W1 = CategoryLinear(slots, action_dim, width)
        self.W2 = CategoryLinear(slots, 2 * width, width)
        self.W3 = CategoryLinear(slots, width, width)

    def forward(self, actions: torch.Tensor, time: torch.Tensor, embodiments: Embodiments) -> torch.Tensor:
        """actions (B, H, A), time (B,) buckets -> (B, H, width). All tokens of a sample share its time."""
        tokens = self.W1(actions, embodiments)
        features = sinusoidal_time(time, self.width, cosine_first=False, span=self.width // 2).to(tokens.dtype)
        features = features.unsqueeze(1).expand(-1, actions.shape[1], -1)
        hidden = functional.silu(self.W2(torch.cat([tokens, features], dim=-1), embodiments))
        return self.W3(hidden, embodiments)
