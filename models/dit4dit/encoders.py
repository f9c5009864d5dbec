"""Small networks between robot vectors and transformer tokens."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from vla_train.nn import Linear, sinusoidal_time


class TwoLayer(nn.Module):
    """Linear(ReLU(Linear(x))) on the last axis: encodes the state and decodes actions."""

    def __init__(self, input_dim: int, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.layer1 = Linear(input_dim, hidden_dim)
        self.layer2 = Linear(hidden_dim, output_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer2(functional.relu(self.layer1(x)))


class ActionEncoder(nn.Module):
    """Noisy actions and their time bucket -> tokens."""

    def __init__(self, action_dim: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.layer1 = Linear(action_dim, width)
        self.layer2 = Linear(2 * width, width)
        self.layer3 = Linear(width, width)

    def forward(self, actions: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """actions (N, H, D), time (N,) buckets -> (N, H, width). All tokens of a sample share its time."""
        tokens = self.layer1(actions)
        time_features = sinusoidal_time(time, self.width, cosine_first=False, span=self.width // 2).to(tokens.dtype)
        time_features = time_features.unsqueeze(1).expand(-1, actions.shape[1], -1)
        return self.layer3(functional.silu(self.layer2(torch.cat([tokens, time_features], dim=-1))))
