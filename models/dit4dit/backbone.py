"""The video backbone: features of the observed frame, and the loss on the future frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from vla_backend import Backend
from vla_dit4dit import wan
from vla_dit4dit.attention import group_by_frame
from vla_dit4dit.config import FLOW_MATCHING, BackboneConfig
from vla_dit4dit.cosmos import CosmosParts, prompt_store
from vla_dit4dit.errors import BatchError
from vla_dit4dit.features import Context, TransformerOutput, project_context, project_text, run_transformer
from vla_dit4dit.latent_cache import LatentCache
from vla_dit4dit.latents import VideoLatents
from vla_dit4dit.prompt import PromptEmbedder
from vla_dit4dit.video_loss import flow_matching_loss, pixel_loss, round_time, skip_flow_matching_draws
from vla_train.nn import Draws

OBSERVED = 1  # latent frames that come from the observation


class BackboneOutput(NamedTuple):
    """Features (B, S, W) without gradient, and the scalar future-video loss; None where not asked for."""

    features: torch.Tensor | None
    future_video_loss: torch.Tensor | None


class _Clip(NamedTuple):
    """One batch, ready for the transformer."""

    condition: torch.Tensor  # (B, C, Tl, h, w), zero after the observed frame
    mask: torch.Tensor  # (B, 1, Tl, h, w)
    noise: torch.Tensor  # (B, C, Tl, h, w)
    target: torch.Tensor | None  # (B, C, F, h, w) latents of the future
    future: torch.Tensor | None  # (B, 3, T - 1, H, W) pixels in [0, 1]
    context: Context  # what the blocks need of the text


class CosmosExtractor(nn.Module):
    """Holds the three networks under their published names."""

    def __init__(
        self,
        parts: CosmosParts,
        config: BackboneConfig,
        backend: Backend,
        *,
        clip_frames: int | None,
        checkpointing: bool,
    ) -> None:
        super().__init__()
        self.text_encoder = parts.text_encoder
        self.transformer = parts.transformer
        self.vae = parts.vae
        group_by_frame(parts.transformer)
        wan.speed_up(parts.vae)
        self.config = config
        self.scheduler = parts.scheduler
        self.clip_frames = clip_frames
        self.checkpointing = checkpointing
        self.latents = VideoLatents(parts.vae, backend)
        self.latent_cache = (
            LatentCache(self.latents, int(config.latent_cache_gb * 1e9)) if config.latent_cache else None
        )
        self.prompts = PromptEmbedder(
            parts.text_encoder,
            parts.tokenizer,
            backend=backend,
            max_sequence_length=config.max_sequence_length,
            cache_size=config.prompt_cache_size,
            store=prompt_store(config),
            weights=parts.text_encoder_folder,
            trainable=config.train_text_encoder,
        )
        # Time of the feature pass: the first of one sampler step.
        self.scheduler.set_timesteps(1)
        self.feature_time = round_time(self.scheduler.sigmas[0], config.time_dtype).item()

    @property
    def width(self) -> int:
        """Width W of the features."""
        settings = self.transformer.config
        return int(settings["num_attention_heads"] * settings["attention_head_dim"])

    def train(self, mode: bool = True) -> CosmosExtractor:
        """Frozen networks stay in evaluation mode."""
        super().train(mode)
        for network in (self.text_encoder, self.vae, self.transformer):
            if not any(parameter.requires_grad for parameter in network.parameters()):
                network.eval()
        return self

    def forward(
        self,
        images: torch.Tensor,
        instructions: Sequence[str],
        *,
        draws: Draws,
        features: bool,
        video_loss: bool,
        sample_ids: Sequence[str] | None = None,
    ) -> BackboneOutput:
        """Run the backbone.

        Args:
            images: (B, T, 3, H, W) in [0, 1], or uint8; frame 0 is the observation, the rest is the future.
            instructions: B texts.
            draws: posterior noise (1, C, Tl, h, w) per sample, start noise (B, C, Tl, h, w), then those of the loss.
            features: return the features.
            video_loss: return the loss, if there are future frames.
            sample_ids: B names, with which a latent cache notices augmented frames.

        Raises:
            BatchError: wrong shapes, or an image size the networks cannot take.
        """
        images = self._checked(images, instructions)
        with_loss = video_loss and images.shape[1] > 1
        clip = self._prepare(images, instructions, draws, with_loss, sample_ids)
        if with_loss and self.config.loss_type != FLOW_MATCHING:
            return self._generate(clip, features)
        hidden = None
        if features:
            times = self._times(clip, self.feature_time)
            with torch.no_grad():
                hidden = self._run(clip, clip.noise, times, features=True, velocity=False).features
        if not with_loss:
            return BackboneOutput(hidden, None)
        if clip.target is None:
            return BackboneOutput(hidden, clip.noise.new_zeros(()))

        def velocity(noisy: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
            times[:, :, :OBSERVED] = self.config.conditional_frame_timestep
            predicted = self._run(clip, noisy, times, features=False, velocity=True).velocity
            assert predicted is not None, "asked for"
            return predicted

        loss = flow_matching_loss(velocity, clip.target, clip.noise, OBSERVED, self.config, draws)
        return BackboneOutput(hidden, loss)

    def skip_loss_draws(self, images: torch.Tensor, draws: Draws) -> None:
        """Use up the random numbers that the video loss of this batch would take."""
        batch, frames, _, height, width = images.shape
        latents = images.new_empty(self.latents.shape(batch, self._frames(frames), height, width), dtype=torch.float32)
        future = self._supervised(frames, latents.shape[2])
        if frames > 1 and future and self.config.loss_type == FLOW_MATCHING:
            shape = (*latents.shape[:2], future, *latents.shape[3:])
            skip_flow_matching_draws(shape, latents, self.config, draws)

    def _checked(self, images: torch.Tensor, instructions: Sequence[str]) -> torch.Tensor:
        if images.ndim != 5 or images.shape[2] != 3 or images.shape[1] < 1:
            raise BatchError(
                f"images have shape {tuple(images.shape)}.",
                why="the model takes (batch, frames, 3, height, width)",
                fix="check the collate function; one observed frame is a time axis of length 1",
            )
        if len(instructions) != images.shape[0]:
            raise BatchError(
                f"{len(instructions)} instructions came with {images.shape[0]} samples.", fix="give one text per sample"
            )
        multiple = self.latents.spatial_factor * self.transformer.config["patch_size"][1]
        if images.shape[3] % multiple or images.shape[4] % multiple:
            raise BatchError(
                f"images are {images.shape[3]} x {images.shape[4]} pixels.",
                why=f"VAE and patches shrink them by {multiple}",
                fix=f"set data.image_size to multiples of {multiple}",
            )
        return images.float() / 255.0 if images.dtype == torch.uint8 else images.float()

    def _prepare(
        self,
        images: torch.Tensor,
        instructions: Sequence[str],
        draws: Draws,
        with_loss: bool,
        sample_ids: Sequence[str] | None,
    ) -> _Clip:
        batch, frames, _, height, width = images.shape
        shape = self.latents.shape(batch, self._frames(frames), height, width)
        video = images.transpose(1, 2)
        future = video[:, :, 1:] if with_loss else None
        encoded = video[:, :, :1] * 2.0 - 1.0
        supervised = (
            self._supervised(frames, shape[2]) if with_loss and not self.config.loss_type.startswith("pixel") else 0
        )
        if supervised:
            assert future is not None, "supervised is 0 without a loss"
            unit_range = self.config.loss_type == "latent_mse" and self.config.latent_mse_unit_range
            encoded = torch.cat([encoded, future if unit_range else future * 2.0 - 1.0], dim=2)
            missing = 1 + self.latents.temporal_factor - frames
            if missing > 0:  # only for flow matching, see `_supervised`
                encoded = torch.cat([encoded, encoded[:, :, -1:].expand(-1, -1, missing, -1, -1)], dim=2)
        # Frame 0 of the causal VAE serves the condition and, in training, starts the clip of the target.
        # What a robot sees while it acts never comes again, so only training looks at the cache.
        if self.latent_cache is not None and self.training:
            posterior = self.latent_cache.posterior(encoded, sample_ids)
        else:
            posterior = self.latents.posterior(encoded)
        noise = self.latents.posterior_noise(shape, images.device, draws)
        start = draws.randn(shape, device=images.device)
        first = slice(0, OBSERVED)
        sample = self.latents.normalise(posterior.mean[:, :, first] + posterior.std[:, :, first] * noise[:, :, first])
        condition = functional.pad(sample, (0, 0, 0, 0, 0, shape[2] - OBSERVED))
        mask = start.new_zeros(batch, 1, *shape[2:])
        mask[:, :, first] = 1.0
        target = None
        if supervised:
            target = self.latents.normalise(posterior.mean[:, :, OBSERVED : OBSERVED + supervised])
        with torch.set_grad_enabled(with_loss and torch.is_grad_enabled()):
            embeddings, index = self.prompts.unique(instructions, images.device)
            text = project_text(self.transformer, embeddings)
            text = text if index is None else text[index]
            blocks = None if with_loss else self.config.extract_layer + 1
            context = project_context(self.transformer, text, blocks, checkpointing=self.checkpointing)
        return _Clip(condition, mask, start, target, future, context)

    def _run(
        self, clip: _Clip, latents: torch.Tensor, times: torch.Tensor, *, features: bool, velocity: bool
    ) -> TransformerOutput:
        mixed = clip.mask * clip.condition + (1.0 - clip.mask) * latents
        return run_transformer(
            self.transformer,
            mixed,
            clip.mask,
            times,
            clip.context,
            feature_block=self.config.extract_layer if features else None,
            velocity=velocity,
            checkpointing=self.checkpointing,
        )

    def _generate(self, clip: _Clip, features: bool) -> BackboneOutput:
        """Sample the future with the pipeline's scheduler, with gradients, and compare it with the true one."""
        config, scheduler, latents, hidden = self.config, self.scheduler, clip.noise, None
        scheduler.set_timesteps(config.future_num_inference_steps)
        observed_velocity = (clip.noise - clip.condition) * clip.mask
        for step, timestep in enumerate(scheduler.timesteps):
            sigma = round_time(scheduler.sigmas[step], config.time_dtype).item()
            times = self._times(clip, sigma)
            output = self._run(clip, latents, times, features=features and step == 0, velocity=True)
            hidden = output.features if step == 0 else hidden
            assert output.velocity is not None, "asked for"
            velocity = output.velocity.float()
            if scheduler.config.prediction_type == "flow_prediction":
                velocity = observed_velocity + velocity * (1.0 - clip.mask)
            latents = scheduler.step(velocity, timestep, latents, return_dict=False)[0].float()
        if config.loss_type == "latent_mse":
            if clip.target is None:
                return BackboneOutput(hidden, clip.noise.new_zeros(()))
            generated = latents[:, :, OBSERVED : OBSERVED + clip.target.shape[2]]
            return BackboneOutput(hidden, functional.mse_loss(generated, clip.target))
        assert clip.future is not None, "the pixel losses come with it"
        loss = pixel_loss(
            self.latents.decode(latents),
            clip.future,
            absolute=config.loss_type == "pixel_l1",
            range_by_minimum=config.pixel_range_by_minimum,
            last_frames=config.pixel_last_frames,
        )
        return BackboneOutput(hidden, loss)

    def _times(self, clip: _Clip, sigma: float) -> torch.Tensor:
        """(B, 1, Tl, 1, 1): the condition's time on observed frames, `sigma` on the others."""
        times = torch.full((clip.mask.shape[0], 1, clip.mask.shape[2], 1, 1), sigma, device=clip.mask.device)
        times[:, :, :OBSERVED] = self.config.conditional_frame_timestep
        return times

    def _frames(self, frames: int) -> int:
        """Pixel frames of the clip that the transformer sees; the same in training and inference."""
        return self.clip_frames or max(frames, 1 + self.latents.temporal_factor)

    def _supervised(self, frames: int, latent_frames: int) -> int:
        """Latent frames of the future that have both a truth and a prediction.

        Flow matching repeats the last frame of a clip that is too short for one.
        """
        if self.config.loss_type == FLOW_MATCHING:
            frames = max(frames, 1 + self.latents.temporal_factor)
        return min(self.latents.frames(frames), latent_frames) - OBSERVED


class CosmosBackbone(nn.Module):
    """Keeps the published parameter prefix `extractor.`."""

    def __init__(self, extractor: CosmosExtractor) -> None:
        super().__init__()
        self.extractor = extractor

    def forward(self, images: torch.Tensor, instructions: Sequence[str], **options: Any) -> BackboneOutput:
        """As `CosmosExtractor.forward`."""
        return self.extractor(images, instructions, **options)
