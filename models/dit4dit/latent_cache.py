"""Latents of training clips on disk: the frozen VAE sees every clip once, whatever the number of epochs and runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

from vla_dit4dit.config import ConfigError
from vla_dit4dit.latents import VideoLatents
from vla_train.data.cache import cache_folder
from vla_train.frozen_outputs import FrozenOutputs, digest
from vla_train.tensor_store import TensorStore

#: Raise it when the computation of latents changes their values.
VERSION = 1


class LatentCache:
    """Posteriors of clips, keyed by their pixels, the VAE's weights and dtype, and the chip.

    Args:
        latents: encode.
        limit: bytes of the folder.
        folder: where the files lie; null for `$XDG_CACHE_HOME/vla-backend/latents`.
    """

    def __init__(self, latents: VideoLatents, limit: int, folder: Path | None = None) -> None:
        self.latents = latents
        store = TensorStore(folder or cache_folder("latents"), limit, "clip's latents")
        option = "model.backbone.latent_cache"
        self.outputs = FrozenOutputs(
            latents.vae, store, version=VERSION, what="the VAE", option=option, error=ConfigError
        )

    def posterior(self, clips: torch.Tensor, sample_ids: Sequence[str] | None = None) -> Any:
        """As `VideoLatents.posterior`: distribution of clips (B, 3, T, H, W) in [-1, 1].

        Args:
            clips: as the VAE takes them.
            sample_ids: B names; a name whose pixels are other than before shows that the data is augmented.

        Raises:
            ConfigError: the VAE is trained, or the data is augmented at random.
        """
        rows = self.outputs.outputs(
            [digest([clip]) for clip in clips],
            sample_ids,
            (self.latents.backend.name, clips.dtype, self.latents.dtype),
            lambda at: self.latents.posterior(clips[at : at + 1]).parameters[0],
        )
        return DiagonalGaussianDistribution(torch.stack([row.to(clips.device) for row in rows]))
