"""Attention of the Cosmos blocks on tokens grouped by latent frame.

The blocks' own forward takes hidden states (B, Tl, N, W) with modulation (B, Tl, 1, W) as well as the library's
(B, Tl * N, W): only attention needs all tokens of a sample in one axis. Grouped, the modulation is computed once per
latent frame instead of once per token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import torch
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_cosmos import CosmosAttnProcessor2_0

from vla_backend import FusedKernels
from vla_train.nn import KeyValue
from vla_train.nn.kernels import attend

if TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention
    from diffusers.models.transformers.transformer_cosmos import CosmosTransformer3DModel, CosmosTransformerBlock
    from torch import nn


def group_by_frame(transformer: CosmosTransformer3DModel) -> None:
    """Let all attention layers take grouped tokens; the library's still work."""
    for block in cast("Iterable[CosmosTransformerBlock]", transformer.transformer_blocks):
        for attention in (block.attn1, block.attn2):
            # diffusers annotates neither its processors' __init__ nor that a layer takes any of them.
            attention.set_processor(FrameAttention())  # type: ignore[no-untyped-call, arg-type]


def keys_values(attention: Attention, context: torch.Tensor) -> KeyValue:
    """Normalised keys and values of `context` (B, S, C): two (B, heads, S, head) tensors."""
    norm = cast("nn.Module", attention.norm_k)
    return norm(_split(attention, attention.to_k(context))), _split(attention, attention.to_v(context))


class FrameAttention(CosmosAttnProcessor2_0):
    """Attention of grouped tokens, to each other or to keys and values from `keys_values`; else the library's."""

    kernels = FusedKernels()

    def __call__(
        self,
        attn: Attention,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | KeyValue | None = None,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: tuple[torch.Tensor, torch.Tensor] | None = None,  # type: ignore[override]
    ) -> torch.Tensor:
        # diffusers declares one tensor where its own model gives cosine and sine.
        if hidden_states.ndim == 3:
            return super().__call__(
                attn,
                hidden_states,
                encoder_hidden_states,  # type: ignore[arg-type]
                attention_mask,
                image_rotary_emb,  # type: ignore[arg-type]
            )
        frames = hidden_states.shape[1]
        tokens = hidden_states.flatten(1, 2)
        query = cast("nn.Module", attn.norm_q)(_split(attn, attn.to_q(tokens)))
        if isinstance(encoder_hidden_states, tuple):
            key, value = encoder_hidden_states
        else:
            key, value = keys_values(attn, tokens if encoder_hidden_states is None else encoder_hidden_states)
        if image_rotary_emb is not None:
            query, key = (self._rotate(part, image_rotary_emb) for part in (query, key))
        out = attend(self.kernels, query, key, value, attention_mask)
        out = attn.to_out[0](out.transpose(1, 2).flatten(2, 3).type_as(query))
        return attn.to_out[1](out).unflatten(1, (frames, -1))

    def _rotate(self, x: torch.Tensor, cos_sin: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if self.kernels.rotary is not None:
            return self.kernels.rotary(x, *cos_sin)
        # Declared to take one tensor and to answer two.
        return apply_rotary_emb(x, cos_sin, use_real=True, use_real_unbind_dim=-2)  # type: ignore[arg-type, return-value]


def _split(attention: Attention, projected: torch.Tensor) -> torch.Tensor:
    return projected.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
