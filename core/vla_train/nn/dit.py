"""Diffusion transformer for short token sequences with cross-attention to fixed features.

After Peebles and Xie 2023 (adaptive layer norm) and the cross-attention head of GR00T N1 (NVIDIA 2025). Sub-module
names are those of published checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from vla_backend import FusedKernels
from vla_train.nn.kernels import attend
from vla_train.nn.layers import LayerNorm, Linear, sinusoidal_position_table, sinusoidal_time

KeyValue = tuple[torch.Tensor, torch.Tensor]
ACTIVATIONS = ("gelu", "gelu-approximate", "geglu", "geglu-approximate", "swiglu", "linear-silu")
_GATED = ("geglu", "swiglu")


@dataclass(frozen=True)
class DiTSettings:
    """Shape of a `DiT`. Width = num_attention_heads * attention_head_dim."""

    num_attention_heads: int
    attention_head_dim: int
    num_layers: int
    cross_attention_dim: int
    output_dim: int
    dropout: float = 0.0
    final_dropout: bool = False
    interleave_self_attention: bool = True
    norm_type: str = "ada_norm"
    positional_embeddings: str | None = None
    max_num_positional_embeddings: int = 512
    attention_bias: bool = True
    activation_fn: str = "gelu-approximate"
    norm_elementwise_affine: bool = False
    norm_eps: float = 1e-5

    @property
    def width(self) -> int:
        return self.num_attention_heads * self.attention_head_dim


class TimestepEncoder(nn.Module):
    """Linear(SiLU(Linear(P(t)))) with a 256-wide sinusoid P, [cos | sin], last frequency 1/10000."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.timestep_embedder = nn.ModuleDict({"linear_1": Linear(256, width), "linear_2": Linear(width, width)})

    def forward(self, time: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        features = sinusoidal_time(time, 256, cosine_first=True, span=127).to(dtype)
        hidden = functional.silu(self.timestep_embedder["linear_1"](features))
        return self.timestep_embedder["linear_2"](hidden)


class AdaLayerNorm(nn.Module):
    """LN(x) * (1 + scale) + shift with [scale | shift] = Linear(SiLU(time embedding)); the norm has no weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = Linear(width, 2 * width)
        self.norm = LayerNorm(width, eps=1e-5, elementwise_affine=False)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        scale, shift = self.linear(functional.silu(time)).unsqueeze(1).chunk(2, dim=-1)
        return self.norm(x) * (1 + scale) + shift


class Attention(nn.Module):
    """Multi-head attention; keys and values may be projected beforehand with `keys_values`."""

    kernels = FusedKernels()

    def __init__(self, settings: DiTSettings, context_dim: int) -> None:
        super().__init__()
        width, bias = settings.width, settings.attention_bias
        self.heads = settings.num_attention_heads
        self.to_q = Linear(width, width, bias=bias)
        self.to_k = Linear(context_dim, width, bias=bias)
        self.to_v = Linear(context_dim, width, bias=bias)
        self.to_out = nn.ModuleList([Linear(width, width), nn.Dropout(settings.dropout)])

    def keys_values(self, context: torch.Tensor) -> KeyValue:
        """Keys and values of `context` (B, S, C): two (B, heads, S, head) tensors."""
        return self._split(self.to_k(context)), self._split(self.to_v(context))

    def forward(
        self, x: torch.Tensor, keys_values: KeyValue | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Self-attention when `keys_values` is None; `mask` (B, S) is true at the keys that may be attended to.

        A sample without any such key gets zeros from the attention.

        `x` may hold R copies of the context's batch, (R * B, L, W) with the copies outermost. They share keys and
        values: the copies are folded into the query length, which is exact because queries do not see each other.
        """
        key, value = self.keys_values(x) if keys_values is None else keys_values
        query = self._split(self.to_q(x))
        total, heads, length, head = query.shape
        batch = key.shape[0]
        copies = total // batch
        if copies > 1:
            query = query.view(copies, batch, heads, length, head).permute(1, 2, 0, 3, 4)
            query = query.reshape(batch, heads, copies * length, head)
        if mask is None:
            out = attend(self.kernels, query, key, value)
        else:
            # Kernels disagree on a row without keys (zeros or NaN), so such a row attends everywhere and is zeroed.
            mask = mask[:, None, None, :]
            some = mask.any(dim=-1, keepdim=True)
            # Expanded to every query: not every chip's kernel broadcasts a mask over them.
            allowed = (mask | ~some).expand(-1, -1, query.shape[2], -1)
            out = attend(self.kernels, query, key, value, allowed) * some
        if copies > 1:
            out = out.view(batch, heads, copies, length, head).permute(2, 0, 1, 3, 4)
            out = out.reshape(total, heads, length, head)
        out = out.transpose(1, 2).reshape(total, length, heads * head)
        return self.to_out[1](self.to_out[0](out))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class _Projection(nn.Module):
    """First layer of the feed-forward part: projection and activation."""

    def __init__(self, width: int, inner: int, activation: str) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
        self.activation = activation
        self.proj = Linear(width, 2 * inner if activation in _GATED else inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.proj(x)
        if self.activation in _GATED:
            x, gate = x.chunk(2, dim=-1)
            return x * (functional.gelu(gate) if self.activation == "geglu" else functional.silu(gate))
        if self.activation == "geglu-approximate":  # the name says otherwise, but nothing is gated
            return x * torch.sigmoid(1.702 * x)
        if self.activation == "linear-silu":
            return functional.silu(x)
        return functional.gelu(x, approximate="tanh" if self.activation == "gelu-approximate" else "none")


class FeedForward(nn.Module):
    """Projection to four times the width, activation, dropout, projection back, and optionally dropout again."""

    def __init__(self, settings: DiTSettings) -> None:
        super().__init__()
        width = settings.width
        self.net = nn.ModuleList(
            [
                _Projection(width, 4 * width, settings.activation_fn),
                nn.Dropout(settings.dropout),
                Linear(4 * width, width),
            ]
        )
        if settings.final_dropout:
            self.net.append(nn.Dropout(settings.dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.net:
            x = layer(x)
        return x


class SinusoidalPositions(nn.Module):
    """Adds a fixed sinusoidal position table, kept as the buffer `pe`."""

    pe: torch.Tensor

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.register_buffer("pe", sinusoidal_position_table(length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.pe.shape[1]:
            raise ValueError(
                f"{x.shape[1]} tokens but only {self.pe.shape[1]} positions; raise max_num_positional_embeddings"
            )
        return x + self.pe[:, : x.shape[1]].to(x.dtype)


class DiTBlock(nn.Module):
    """Norm, attention, residual; norm, feed-forward, residual."""

    def __init__(self, settings: DiTSettings, *, cross: bool) -> None:
        super().__init__()
        width, affine, eps = settings.width, settings.norm_elementwise_affine, settings.norm_eps
        self.adaptive = settings.norm_type == "ada_norm"
        self.cross = cross
        self.norm1 = AdaLayerNorm(width) if self.adaptive else LayerNorm(width, eps=eps, elementwise_affine=affine)
        self.pos_embed = None
        if settings.positional_embeddings is not None:
            self.pos_embed = SinusoidalPositions(settings.max_num_positional_embeddings, width)
        self.attn1 = Attention(settings, settings.cross_attention_dim if cross else width)
        self.final_dropout = nn.Dropout(settings.dropout) if settings.final_dropout else None
        self.norm3 = LayerNorm(width, eps=eps, elementwise_affine=affine)
        self.ff = FeedForward(settings)

    def forward(
        self,
        x: torch.Tensor,
        time: torch.Tensor | None,
        keys_values: KeyValue | None = None,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`time` (N, width) is the embedded time, not used with norm_type "layer_norm"; `mask` as in `Attention`."""
        normed = self.norm1(x, time) if self.adaptive else self.norm1(x)
        if self.pos_embed is not None:
            normed = self.pos_embed(normed)
        attended = self.attn1(normed, keys_values, mask)
        if self.final_dropout is not None:
            attended = self.final_dropout(attended)
        x = attended + x
        return self.ff(self.norm3(x)) + x


class DiT(nn.Module):
    """Stack of `DiTBlock`s: all cross-attention, or cross- and self-attention in turn (`interleave_self_attention`)."""

    def __init__(self, settings: DiTSettings) -> None:
        super().__init__()
        if settings.norm_type not in ("ada_norm", "layer_norm"):
            raise ValueError(f"unknown norm_type {settings.norm_type!r}; known: ada_norm, layer_norm")
        if settings.positional_embeddings not in (None, "sinusoidal"):
            raise ValueError(
                f"unknown positional_embeddings {settings.positional_embeddings!r}; known: null, sinusoidal"
            )
        width = settings.width
        self.settings = settings
        self.timestep_encoder = TimestepEncoder(width)
        self.transformer_blocks = nn.ModuleList(
            DiTBlock(settings, cross=not (settings.interleave_self_attention and index % 2))
            for index in range(settings.num_layers)
        )
        self.norm_out = LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.proj_out_1 = Linear(width, 2 * width)
        self.proj_out_2 = Linear(width, settings.output_dim)

    def encode_context(self, context: torch.Tensor) -> list[KeyValue | None]:
        """Keys and values of the context (B, S, cross_attention_dim) for each block, None for self-attention.

        They do not depend on time, so one call serves all copies of a training batch and all steps of sampling.
        """
        blocks = cast("Iterable[DiTBlock]", self.transformer_blocks)
        return [block.attn1.keys_values(context) if block.cross else None for block in blocks]

    def forward(
        self,
        x: torch.Tensor,
        time: torch.Tensor,
        context: list[KeyValue | None],
        masks: Sequence[torch.Tensor | None] | None = None,
    ) -> torch.Tensor:
        """One prediction per token.

        Args:
            x: (R * B, L, width).
            time: (R * B,) buckets.
            context: from `encode_context`.
            masks: per block the context tokens (B, S) it may attend to, None for all; None for all blocks alike.

        Returns:
            (R * B, L, output_dim).
        """
        embedded = self.timestep_encoder(time, x.dtype)
        if masks is None:
            masks = [None] * len(self.transformer_blocks)
        for block, keys_values, mask in zip(self.transformer_blocks, context, masks, strict=True):
            x = block(x, embedded, keys_values, mask)
        # Published checkpoints hold [shift | scale] here, the other way round than in the blocks.
        shift, scale = self.proj_out_1(functional.silu(embedded)).unsqueeze(1).chunk(2, dim=-1)
        return self.proj_out_2(self.norm_out(x) * (1 + scale) + shift)
