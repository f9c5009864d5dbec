"""Latents of training clips on disk: the frozen VAE sees every clip once, whatever the number of epochs and runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

from vla_dit4dit.config import ConfigError
from vla_dit4dit.latents import VideoLatents
from vla_dit4dit.store import TensorStore, fingerprint
from vla_train.data.cache import cache_folder

#: Raise it when the computation of latents changes their values.
VERSION = 1
_WATCHED = 100_000  # samples whose frames are compared with what they were before


class LatentCache:
    """Posteriors of clips, keyed by their pixels, the VAE's weights and dtype, and the chip.

    A clip that is not there is encoded by itself, so that its numbers do not depend on the rest of its batch.

    Args:
        latents: encode.
        limit: bytes of the folder.
        folder: where the files lie; null for `$XDG_CACHE_HOME/vla-backend/latents`.
    """

    def __init__(self, latents: VideoLatents, limit: int, folder: Path | None = None) -> None:
        self.latents = latents
        self.store = TensorStore(folder or cache_folder("latents"), limit, "clip's latents")
        self._fingerprint: str | None = None
        self._seen: dict[str, bytes] = {}
        latents.vae.register_load_state_dict_post_hook(lambda *_: self.forget())

    def forget(self) -> None:
        """New weights give new latents."""
        self._fingerprint = None

    def posterior(self, clips: torch.Tensor, sample_ids: Sequence[str] | None = None) -> Any:
        """As `VideoLatents.posterior`: distribution of clips (B, 3, T, H, W) in [-1, 1].

        Args:
            clips: as the VAE takes them.
            sample_ids: B names; a name whose pixels are other than before shows that the data is augmented.

        Raises:
            ConfigError: the VAE is trained, or the data is augmented at random.
        """
        self._refuse_trained()
        digests = [hashlib.blake2b(_bytes(clip), digest_size=16).digest() for clip in clips]
        if sample_ids is not None:
            self._refuse_random(sample_ids, digests)
        rows = [self._one(clip, digest) for clip, digest in zip(clips, digests, strict=True)]
        return DiagonalGaussianDistribution(torch.stack(rows))

    def _one(self, clip: torch.Tensor, digest: bytes) -> torch.Tensor:
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.latents.vae.state_dict())
        settings = (self.latents.backend.name, tuple(clip.shape), clip.dtype, self.latents.dtype)
        path = self.store.file(VERSION, self._fingerprint, *settings, digest.hex())
        found = self.store.load(path)
        if found is None:
            found = self.latents.posterior(clip[None]).parameters[0]
            self.store.save(path, found)
        return found.to(clip.device)

    def _refuse_trained(self) -> None:
        if any(parameter.requires_grad for parameter in self.latents.vae.parameters()):
            raise ConfigError(
                "model.backbone.latent_cache is true, but the VAE is trained.",
                why="its latents change with every step",
                fix="set model.backbone.latent_cache=false",
            )

    def _refuse_random(self, sample_ids: Sequence[str], digests: Sequence[bytes]) -> None:
        for name, digest in zip(sample_ids, digests, strict=True):
            if self._seen.get(name, digest) != digest:
                raise ConfigError(
                    "model.backbone.latent_cache is true, but the data gives other frames every time.",
                    why=f"sample {name} had other pixels before: images are augmented at random, or changed on disk",
                    fix="set model.backbone.latent_cache=false, or turn the augmentation off",
                )
            if len(self._seen) < _WATCHED:
                self._seen[name] = digest


def _bytes(clip: torch.Tensor) -> bytes:
    return clip.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
