"""Running the Cosmos video transformer block by block.

The blocks and all other layers are the library's; only their order is written out here, because the library's own
forward cannot stop early and needs torchvision to resize a mask that is zero everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch.utils.checkpoint import checkpoint

from vla_dit4dit.attention import keys_values
from vla_train.nn import KeyValue

if TYPE_CHECKING:
    from diffusers.models.transformers.transformer_cosmos import CosmosTransformer3DModel, CosmosTransformerBlock

# Per block: keys and values of the text, or the text itself.
Context = Sequence[torch.Tensor | KeyValue]


class TransformerOutput(NamedTuple):
    """Features (B, S, W) of a block and velocity (B, C, Tl, h, w), each None if not asked for.

    Tokens are ordered by frame, then row, then column; S = Tl * (h / 2) * (w / 2).
    """

    features: torch.Tensor | None
    velocity: torch.Tensor | None


def project_text(transformer: CosmosTransformer3DModel, embeddings: torch.Tensor) -> torch.Tensor:
    """Prompt embeddings (U, S, E) -> what the blocks attend to (U, S, C), in the transformer's dtype."""
    embeddings = embeddings.to(transformer.dtype)
    if transformer.config.get("use_crossattn_projection"):
        return transformer.crossattn_proj(embeddings)
    return embeddings


def project_context(
    transformer: CosmosTransformer3DModel,
    text: torch.Tensor,
    blocks: int | None = None,
    *,
    checkpointing: bool = False,
) -> Context:
    """What each block's cross-attention needs of `text` (B, S, C) from `project_text`.

    Keys and values do not depend on time, so several passes share them. With checkpointing the blocks get the text
    itself: recomputing its keys and values is cheaper than keeping those of every block.

    Args:
        transformer: of the pipeline.
        text: (B, S, C).
        blocks: only the first so many; None for all.
        checkpointing: the passes recompute their blocks in the backward pass.
    """
    chosen = cast("Sequence[CosmosTransformerBlock]", transformer.transformer_blocks[:blocks])
    if checkpointing and torch.is_grad_enabled():
        return [text] * len(chosen)
    return [keys_values(block.attn2, text) for block in chosen]


def run_transformer(
    transformer: CosmosTransformer3DModel,
    latents: torch.Tensor,
    condition_mask: torch.Tensor,
    time: torch.Tensor,
    context: Context,
    *,
    feature_block: int | None = None,
    velocity: bool = True,
    checkpointing: bool = False,
) -> TransformerOutput:
    """One pass of the video transformer.

    Args:
        transformer: prepared with `group_by_frame`.
        latents: (B, C, Tl, h, w).
        condition_mask: (B, 1, Tl, h, w), 1 where the latent is observed.
        time: (B, 1, Tl, 1, 1) float32, one value per latent frame.
        context: from `project_context`, for as many blocks as run.
        feature_block: block whose output to return, detached.
        velocity: run all blocks and return the velocity; false stops after `feature_block`.
        checkpointing: recompute the blocks in the backward pass.
    """
    dtype, settings = transformer.dtype, transformer.config
    batch, _, frames, height, width = latents.shape
    _, patch_h, patch_w = settings["patch_size"]
    rows, columns = height // patch_h, width // patch_w

    channels = [latents.to(dtype), condition_mask.to(dtype)]
    if settings["concat_padding_mask"]:
        # No part of a robot's image is padding.
        channels.append(torch.zeros_like(channels[1]))
    inputs = torch.cat(channels, dim=1)
    rope = transformer.rope(inputs, fps=None)
    positions = None
    if settings["extra_pos_embed_type"]:
        assert transformer.learnable_pos_embed is not None
        positions = transformer.learnable_pos_embed(inputs).unflatten(1, (frames, -1))
    # (B, Tl, N, W): tokens grouped by latent frame, each group with its own time.
    hidden = transformer.patch_embed(inputs).flatten(2, 3)
    modulation, embedded = (
        values.view(batch, frames, 1, -1) for values in transformer.time_embed(hidden, time.flatten())
    )

    features = None
    recompute = checkpointing and torch.is_grad_enabled()
    for index, (block, text) in enumerate(zip(transformer.transformer_blocks, context, strict=False)):
        arguments = (hidden, text, embedded, modulation, rope, positions, None)
        hidden = checkpoint(block, *arguments, use_reentrant=False) if recompute else block(*arguments)
        if index == feature_block:
            features = hidden.detach().flatten(1, 2)
            if not velocity:
                return TransformerOutput(features, None)

    hidden = transformer.proj_out(transformer.norm_out(hidden, embedded, modulation))
    # Pixels of a patch lie in the order row, column, frame, channel.
    hidden = hidden.view(batch, frames, rows, columns, patch_h, patch_w, -1)
    return TransformerOutput(features, hidden.permute(0, 6, 1, 2, 4, 3, 5).flatten(5, 6).flatten(3, 4))
