"""What the action head does to the features of the backbone, and which of them each DiT block may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from vla_groot.architecture import Architecture
from vla_groot.errors import ConfigError
from vla_train.nn import DiTBlock, DiTSettings, LayerNorm

# Arguments of the published implementation that change nothing here.
_IGNORED = ("num_embeds_ada_norm", "upcast_attention", "compute_dtype", "cross_attention_dim")


@dataclass
class Features:
    """Output of the backbone.

    Attributes:
        hidden: (B, S, F).
        attention_mask: (B, S) bool, false at padding.
        image_mask: (B, S) bool, true at image tokens.
    """

    hidden: torch.Tensor
    attention_mask: torch.Tensor
    image_mask: torch.Tensor


def dit_settings(raw: dict[str, Any], cross_attention_dim: int) -> DiTSettings:
    """Settings of the DiT from `diffusion_model_cfg`; a key it lacks has the published implementation's default.

    Raises:
        ConfigError: an unknown key.
    """
    known = {entry.name for entry in fields(DiTSettings)}
    unknown = sorted(set(raw) - known - set(_IGNORED))
    if unknown:
        raise ConfigError(
            f"Unknown setting of transformer blocks: {', '.join(unknown)}.",
            why="diffusion_model_cfg or vl_self_attention_cfg of config.json has it",
            fix=f"known: {', '.join(sorted(known))}",
        )
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
    config: Architecture,
    cross: Sequence[bool],
    attention_mask: torch.Tensor,
    image_mask: torch.Tensor,
    steps: torch.Tensor | None = None,
) -> list[torch.Tensor | None]:
    """Which tokens each block of the DiT may attend to; None for all.

    The even blocks of the alternating DiT are cross-attention: block i sees the text if i is a multiple of 2 n and the
    image otherwise, with n = `attend_text_every_n_blocks`; padding is never seen. The plain DiT sees everything,
    padding included unless `mask_feature_padding` is set.

    Args:
        config: the architecture.
        cross: for every block whether it is cross-attention.
        attention_mask, image_mask: (B, S) bool.
        steps: (B, H) bool, action steps that self-attention may see; None for all.
    """
    own = None if steps is None else torch.nn.functional.pad(steps, (1, 0), value=True)  # the state is always seen
    text, image = attention_mask & ~image_mask, attention_mask & image_mask
    period = 2 * config.attend_text_every_n_blocks
    masks: list[torch.Tensor | None] = []
    for index, is_cross in enumerate(cross):
        if not is_cross:
            masks.append(own)
        elif config.use_alternate_vl_dit:
            masks.append(text if index % period == 0 else image)
        else:
            masks.append(attention_mask if config.mask_feature_padding else None)
    return masks
