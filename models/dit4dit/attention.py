"""Attention of the Cosmos blocks on tokens grouped by latent frame.

The blocks' own forward takes hidden states (B, Tl, N, W) with modulation (B, Tl, 1, W) as well as the library's
(B, Tl * N, W): only attention needs all tokens of a sample in one axis. Grouped, the modulation is computed once per
latent frame instead of once per token.
"""

from __future__ import annotations

import torch
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_cosmos import CosmosAttnProcessor2_0
from torch import nn

from vla_backend import FusedKernels
from vla_train.nn import KeyValue
from vla_train.nn.kernels import attend


def group_by_frame(transformer: nn.Module) -> None:
    """Let all attention layers of a `CosmosTransformer3DModel` take grouped tokens; the library's still work."""
    for block in transformer.transformer_blocks:
        block.attn1.set_processor(FrameAttention())
        block.attn2.set_processor(FrameAttention())


def keys_values(attention: nn.Module, context: torch.Tensor) -> KeyValue:
    """Normalised keys and values of `context` (B, S, C): two (B, heads, S, head) tensors."""
    return attention.norm_k(_split(attention, attention.to_k(context))), _split(attention, attention.to_v(context))


class FrameAttention(CosmosAttnProcessor2_0):
    """Attention of grouped tokens, to each other or to keys and values from `keys_values`; else the library's."""

    kernels = FusedKernels()

    def __call__(
        self,
        attn: nn.Module,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | KeyValue | None = None,
        attention_mask: torch.Tensor | None = None,
        image_rotary_emb: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        if hidden_states.ndim == 3:
            return super().__call__(attn, hidden_states, encoder_hidden_states, attention_mask, image_rotary_emb)
        frames = hidden_states.shape[1]
        tokens = hidden_states.flatten(1, 2)
        query = attn.norm_q(_split(attn, attn.to_q(tokens)))
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
        return apply_rotary_emb(x, cos_sin, use_real=True, use_real_unbind_dim=-2)


def _split(attention: nn.Module, projected: torch.Tensor) -> torch.Tensor:
    return projected.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
