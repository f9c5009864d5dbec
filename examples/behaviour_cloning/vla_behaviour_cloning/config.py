"""The `model:` section. No torch here: the launcher reads it before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class BehaviourCloningConfig:
    """Sizes of the transformer; image size, state and action width are those of the `data:` section.

    Attributes:
        name: picks this model.
        width: of every token; a multiple of `heads`.
        heads: attention heads.
        layers: transformer blocks.
        patch_size: pixels per side of an image token; divides `data.image_size`.
        action_horizon: steps of one predicted chunk.
        vocabulary: rows of the table that words of the instruction are hashed into.
        state_noise: standard deviation of the noise added to the normalised state in training, against copying it.
    """

    name: str = "behaviour_cloning"
    width: int = 128
    heads: int = 4
    layers: int = 4
    patch_size: int = 8
    action_horizon: int = 8
    vocabulary: int = 1024
    state_noise: float = 0.01
