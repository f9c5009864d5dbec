"""Normalised latents of the Wan VAE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vla_backend import Backend
from vla_train.nn import Draws

if TYPE_CHECKING:
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan


class VideoLatents:
    """Encodes and decodes clips with a frozen VAE, in the VAE's own dtype and without autocast.

    Latents are float32 and normalised with the mean and standard deviation of the VAE's configuration. (The
    pipeline's attributes of these names hold the inverse in some versions of diffusers.)
    """

    def __init__(self, vae: AutoencoderKLWan, backend: Backend) -> None:
        settings = vae.config
        self.vae = vae
        self.backend = backend
        self.channels: int = settings["z_dim"]
        self.temporal_factor: int = 2 ** sum(settings["temperal_downsample"])
        self.spatial_factor: int = 2 ** len(settings["temperal_downsample"])
        self._statistics = tuple(
            torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1, 1)
            for values in (settings["latents_mean"], settings["latents_std"])
        )

    def frames(self, pixel_frames: int) -> int:
        """Latent frames of a clip of `pixel_frames` frames: the first alone, then one per `temporal_factor`."""
        return (pixel_frames - 1) // self.temporal_factor + 1

    def shape(self, batch: int, pixel_frames: int, height: int, width: int) -> tuple[int, int, int, int, int]:
        """(B, C, Tl, h, w) of the latents of a clip."""
        factor = self.spatial_factor
        return batch, self.channels, self.frames(pixel_frames), height // factor, width // factor

    @torch.no_grad()
    def posterior(self, clip: torch.Tensor) -> Any:
        """Distribution (`mean`, `std`: (B, C, Tl, h, w)) of a clip (B, 3, T, H, W) in [-1, 1].

        The VAE is causal: latent frame 0 depends on pixel frame 0 alone.
        """
        with self.backend.fp32_region():
            return self.vae.encode(clip.to(self.dtype)).latent_dist

    def posterior_noise(self, shape: tuple[int, ...], device: torch.device, draws: Draws) -> torch.Tensor:
        """Noise for a posterior sample, drawn sample by sample as published training did."""
        single = (1, *shape[1:])
        return torch.cat([draws.randn(single, device=device, dtype=self.dtype) for _ in range(shape[0])])

    def normalise(self, latents: torch.Tensor) -> torch.Tensor:
        """(z - mean) / std in float32."""
        mean, std = self._on(latents.device)
        return (latents.float() - mean) / std

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Normalised latents (B, C, Tl, h, w) -> clip (B, 3, T, H, W) in [-1, 1], float32, differentiable."""
        mean, std = self._on(latents.device)
        with self.backend.fp32_region():
            return self.vae.decode((latents.float() * std + mean).to(self.dtype)).sample.float()

    @property
    def dtype(self) -> torch.dtype:
        return self.vae.dtype

    def _on(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        if self._statistics[0].device != device:
            self._statistics = tuple(values.to(device) for values in self._statistics)
        return self._statistics
