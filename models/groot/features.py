"""What the action head does to the features of the backbone, and which of them each DiT block may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from torch import nn

from vla_groot.architecture import Architecture
from vla_groot.errors import ConfigError
from vla_train.nn import DiTBlock, DiTSettings, KeyValue, LayerNorm

# Arguments of the published implementation that change nothing here.
_IGNORED = ("num_embeds_ada_norm", "upcast_attention", "compute_dtype", "cross_attention_dim")


@dataclass(frozen=True)
class Tokens:
    """The tokens that a cross-attention may attend to, picked from all.

    Attributes:
        rows: (B * n,) where they are in the flattened features (B * S, F).
        count: n, as many as the sample with most of them has; at least 1.
        mask: (B, n) bool, false where a sample has fewer; None if all have n.
    """

    rows: torch.Tensor
    count: int
    mask: torch.Tensor | None

    @classmethod
    def of(cls, visible: torch.Tensor, device: torch.device) -> Tokens:
        """Those where `visible` (B, S), which is read on the host, is true."""
        visible = visible.cpu()
        samples, length = visible.shape
        count = max(1, int(visible.sum(1).max())) if samples else 1
        # A stable sort keeps the tokens in their order.
        order = visible.int().argsort(dim=1, descending=True, stable=True)[:, :count]
        mask = visible.gather(1, order)
        rows = (order + torch.arange(samples)[:, None] * length).flatten()
        return cls(rows.to(device), count, None if bool(mask.all()) else mask.to(device))

    def of_features(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, S, F) -> (B, n, F)."""
        return hidden.flatten(0, 1).index_select(0, self.rows).unflatten(0, (-1, self.count))


@dataclass
class Features:
    """Output of the backbone.

    Attributes:
        hidden: (B, S, F).
        attention_mask: (B, S) bool, false at padding.
        image_mask: (B, S) bool, true at image tokens.
        text, image: the tokens of either kind without padding; found from the masks if they are not given, which
            waits for the device if the masks are there.
    """

    hidden: torch.Tensor
    attention_mask: torch.Tensor
    image_mask: torch.Tensor
    text: Tokens | None = None
    image: Tokens | None = None

    def tokens(self) -> tuple[Tokens, Tokens]:
        """Those of the text and those of the images."""
        if self.text is None or self.image is None:
            self.text, self.image = split_tokens(self.attention_mask, self.image_mask, self.hidden.device)
        return self.text, self.image


def split_tokens(attention_mask: torch.Tensor, image_mask: torch.Tensor, device: torch.device) -> tuple[Tokens, Tokens]:
    """The tokens of the text and of the images, padding left out; masks (B, S) bool."""
    real, image = attention_mask.cpu(), image_mask.cpu()
    return Tokens.of(real & ~image, device), Tokens.of(real & image, device)


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


@dataclass
class Context:
    """What each block of the DiT attends to.

    Attributes:
        keys_values: of the features for a cross-attention block, None for self-attention.
        masks: (B, n) bool, which keys count; None for all.
    """

    keys_values: list[KeyValue | None]
    masks: list[torch.Tensor | None]


def encode_context(
    config: Architecture,
    blocks: Iterable[nn.Module],
    features: Features,
    hidden: torch.Tensor,
    steps: torch.Tensor | None = None,
) -> Context:
    """Keys, values and masks of all blocks.

    The even blocks of the alternating DiT are cross-attention: block i sees the text if i is a multiple of 2 n and the
    image otherwise, with n = `attend_text_every_n_blocks`; padding is never seen. Only the tokens a block sees become
    its keys and values. The plain DiT sees everything, padding included unless `mask_feature_padding` is set.

    Args:
        config: the architecture.
        blocks: `DiTBlock`s.
        features: from the backbone.
        hidden: (B, S, F), the features after norm and self-attention.
        steps: (B, H) bool, action steps that self-attention may see; None for all.
    """
    own = None if steps is None else torch.nn.functional.pad(steps, (1, 0), value=True)  # the state is always seen
    seen: list[tuple[torch.Tensor, torch.Tensor | None]]
    if config.use_alternate_vl_dit:
        seen = [(tokens.of_features(hidden), tokens.mask) for tokens in features.tokens()]
    else:
        seen = [(hidden, features.attention_mask if config.mask_feature_padding else None)] * 2
    period = 2 * config.attend_text_every_n_blocks
    context = Context([], [])
    for index, block in enumerate(cast("Iterable[DiTBlock]", blocks)):
        tokens, mask = seen[0] if index % period == 0 else seen[1]
        context.keys_values.append(block.attn1.keys_values(tokens) if block.cross else None)
        context.masks.append(mask if block.cross else own)
    return context
