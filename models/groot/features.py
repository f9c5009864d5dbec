"""What the action head does to the features of the backbone, and which of them each DiT block may see."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vla_groot.architecture import Architecture
from vla_train.nn import DiTBlock, DiTSettings, LayerNorm

# Arguments of the published implementation that change nothing here.
_IGNORED = ("num_embeds_ada_norm", "upcast_attention", "compute_dtype", "cross_attention_dim")


def dit_settings(raw: dict[str, Any], cross_attention_dim: int) -> DiTSettings:
    """Settings of the DiT from `diffusion_model_cfg`; a key it lacks has the published implementation's default."""
    defaults = {
        "num_attention_heads": 8,
        "attention_head_dim": 64,
        "num_layers": 12,
        "output_dim": 26,
        "dropout": 0.1,
        "final_dropout": True,
        "interleave_self_attention": False,
        "positional_embeddings": "sinusoidal",
    }
    given = {key: value for key, value in raw.items() if key not in _IGNORED}
    return DiTSettings(**{**defaults, **given, "cross_attention_dim": cross_attention_dim})


class FeatureSelfAttention(nn.Module):
    """Pre-norm transformer blocks over the backbone's features; there is no final norm."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__()
        given = {**raw, "norm_type": "layer_norm", "norm_elementwise_affine": True, "norm_eps": 1e-5}
        settings = dit_settings({**given, "output_dim": 0}, 0)
        self.transformer_blocks = nn.ModuleList(DiTBlock(settings, cross=False) for _ in range(settings.num_layers))

    def forward(self, features: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """features (B, S, F) -> the same shape; `mask` (B, S) is true at the tokens that may be attended to."""
        for block in self.transformer_blocks:
            features = block(features, None, mask=mask)
        return features


def feature_norm(config: Architecture) -> nn.Module:
    """Layer norm over the features, or the identity."""
    return LayerNorm(config.backbone_embedding_dim, eps=1e-5) if config.use_vlln else nn.Identity()


def block_masks(
    config: Architecture, layers: int, attention_mask: torch.Tensor, image_mask: torch.Tensor
) -> list[torch.Tensor | None] | None:
    """Which feature tokens each block of the DiT may attend to.

    Even blocks are cross-attention. Block i sees the text if i is a multiple of 2 n and the image otherwise, with
    n = `attend_text_every_n_blocks`; padding is never seen. The plain DiT sees everything, padding included.

    Args:
        config: the architecture.
        layers: blocks of the DiT.
        attention_mask, image_mask: (B, S) bool.
    """
    if not config.use_alternate_vl_dit:
        return None
    text, image = attention_mask & ~image_mask, attention_mask & image_mask
    period = 2 * config.attend_text_every_n_blocks
    return [None if index % 2 else (text if index % period == 0 else image) for index in range(layers)]
