"""Small layers whose arithmetic runs in the dtype of their input, whatever dtype their weights are stored in."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class Linear(nn.Linear):
    """`nn.Linear` that casts its weights to the input's dtype.

    A training engine may store all weights in bfloat16; a float32 input then still gets a float32 product, which
    keeps the arithmetic of time and noise exact. Equal dtypes cost nothing.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return functional.linear(input, self.weight.to(input.dtype), bias)


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` that casts its weights, if any, to the input's dtype."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight = None if self.weight is None else self.weight.to(input.dtype)
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return functional.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


def sinusoidal_time(time: torch.Tensor, width: int, *, cosine_first: bool, span: int) -> torch.Tensor:
    """Sinusoidal features of a time value in float32 (Vaswani et al. 2017, section 3.5).

    Args:
        time: (N,) time values, integer or floating.
        width: even number of features.
        cosine_first: [cos | sin] if true, else [sin | cos].
        span: frequencies are 10000^(-i / span), i = 0 .. width/2 - 1.

    Returns:
        (N, width) float32.
    """
    if width % 2:
        raise ValueError(f"sinusoidal features need an even width, got {width}")
    index = torch.arange(width // 2, dtype=torch.float32, device=time.device)
    # Times reach 1000, so the last bit of a frequency shows. Published models round the exponent in these two orders.
    exponent = index * -math.log(10000.0) / span if cosine_first else index * -(_float32(math.log(10000.0)) / span)
    angle = time.to(torch.float32)[:, None] * exponent.exp()[None, :]
    halves = (angle.cos(), angle.sin()) if cosine_first else (angle.sin(), angle.cos())
    return torch.cat(halves, dim=-1)


def _float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()


def sinusoidal_position_table(length: int, width: int) -> torch.Tensor:
    """Sinusoidal position table with alternating sine and cosine columns (Vaswani et al. 2017).

    Returns:
        (1, length, width) float32.
    """
    position = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width))
    table = torch.zeros(1, length, width)
    table[0, :, 0::2] = torch.sin(position * frequency)
    table[0, :, 1::2] = torch.cos(position * frequency)
    return table
