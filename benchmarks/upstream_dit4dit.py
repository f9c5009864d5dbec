"""DiT4DiT's steps the way upstream computes them, on the weights of our model: what the benchmarks compare with.

Nothing here is meant to be fast. Upstream's way, in its order: the text encoder with its language-model head for every
sample, the observation encoded sample by sample in a clip padded with grey frames, the transformer in full with a hook
that keeps one block's output, a second encoding and a second full pass for the video loss, and the features repeated
for every copy of the action loss, keys and values projected anew at every Euler step.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from diffusers.models.transformers import transformer_cosmos
from torch.nn import functional

from vla_dit4dit import wan
from vla_dit4dit.model import DiT4DiT
from vla_dit4dit.video_loss import draw_times
from vla_train.nn import discretise, euler_times, interpolate, masked_mean_square, velocity_target


class Upstream:
    """The same losses and actions as `model`, from the same draws."""

    def __init__(self, model: DiT4DiT) -> None:
        self.model = model
        self.extractor = model.backbone_interface.extractor
        self.config = model.config.backbone

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Losses of one batch, as `DiT4DiT.forward`; the video loss is not computed in mode "action"."""
        joint = self.model.config.mode == "joint"
        features, video_loss = self._backbone(batch["images"], batch["lang"], video_loss=joint)
        losses = {"action_loss": self.action_loss(features, batch)}
        return losses if video_loss is None else {**losses, "future_video_loss": video_loss}

    @torch.inference_mode()
    def predict_action(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """Actions (B, H, D), as `DiT4DiT.predict_action` on the observation alone."""
        features, _ = self._backbone(batch["images"][:, :1], batch["lang"], video_loss=False)
        return self.sample(features, batch.get("state"))

    def encode_prompts(self, instructions: Sequence[str]) -> torch.Tensor:
        """(B, S, layers * width), every sample by itself with the language-model head."""
        prompts, found = self.extractor.prompts, []
        for text in instructions:
            output = self.extractor.text_encoder(input_ids=prompts.token_ids(text), output_hidden_states=True)
            layers = [
                (state - state.mean(dim=-1, keepdim=True)) / (state.std(dim=-1, keepdim=True) + 1e-8)
                for state in output.hidden_states[1:]
            ]
            found.append(torch.cat(layers, dim=-1))
        return torch.cat(found)

    def encode(self, video: torch.Tensor) -> Any:
        """Posterior of clips (B, 3, T, H, W), by the library's own layers."""
        with _library_layers(self.extractor.vae):
            return self.extractor.vae.encode(video).latent_dist

    def encode_condition(self, first: torch.Tensor, frames: int) -> torch.Tensor:
        """Normalised latents (B, C, Tl, h, w) of clips of the observation (B, 3, 1, H, W) and grey frames."""
        latents, samples = self.extractor.latents, []
        for image in first:
            grey = image.new_zeros(3, frames - 1, *image.shape[2:])
            posterior = self.encode(torch.cat([image, grey], dim=1)[None])
            noise = self.model.draws.randn(posterior.mean.shape, device=image.device)
            samples.append(posterior.mean + posterior.std * noise)
        return latents.normalise(torch.cat(samples))

    def transformer(
        self, latents: torch.Tensor, mask: torch.Tensor, time: torch.Tensor, embeddings: torch.Tensor
    ) -> torch.Tensor:
        """The library's own forward: time (B,) on the frames after the observation."""
        times = time.view(-1, 1, 1, 1, 1).repeat(1, 1, latents.shape[2], 1, 1)
        times[:, :, 0] = self.config.conditional_frame_timestep
        factor = self.extractor.latents.spatial_factor
        padding = latents.new_zeros(1, 1, latents.shape[3] * factor, latents.shape[4] * factor)
        with _resize_without_torchvision():
            return self.extractor.transformer(
                hidden_states=latents,
                timestep=times,
                encoder_hidden_states=embeddings,
                condition_mask=mask,
                padding_mask=padding,
                return_dict=False,
            )[0]

    def feature_pass(
        self, mixed: torch.Tensor, mask: torch.Tensor, embeddings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All blocks, with a graph if the transformer is trained; a hook keeps one block's output.

        Returns:
            What the hook kept, and the velocity with its graph.
        """
        kept: list[torch.Tensor] = []
        block = self.extractor.transformer.transformer_blocks[self.config.extract_layer]
        hook = block.register_forward_hook(lambda _module, _inputs, output: kept.append(output.detach()))
        with torch.enable_grad():
            time = mixed.new_full((mixed.shape[0],), self.extractor.feature_time)
            velocity = self.transformer(mixed, mask, time, embeddings)
        hook.remove()
        return kept[0], velocity

    def _backbone(
        self, images: torch.Tensor, instructions: Sequence[str], *, video_loss: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        draws = self.model.draws
        video = images.transpose(1, 2) * 2 - 1
        embeddings = self.encode_prompts(instructions)
        condition = self.encode_condition(video[:, :, :1], self.extractor.clip_frames or images.shape[1])
        start = draws.randn(condition.shape, device=condition.device)
        mask = torch.zeros_like(condition[:, :1])
        mask[:, :, 0] = 1
        # Nobody uses the velocity; as a variable of this function it keeps its graph until the function returns.
        features, unused = self.feature_pass(mask * condition + (1 - mask) * start, mask, embeddings)
        if not video_loss:
            return features, None
        with torch.no_grad():
            target = self.extractor.latents.normalise(self.encode(video).mean)[:, :, 1:]
        time = draw_times(self.config.flow_matching, target.shape[0], target.device, draws)
        noise, filled = draws.randn_like(target), draws.randn_like(condition)
        filled[:, :, 1:] = interpolate(target, noise, time)
        velocity = self.transformer(mask * condition + (1 - mask) * filled, mask, time, embeddings)
        loss = functional.mse_loss(velocity[:, :, 1:], velocity_target(target, noise))
        del unused
        return features, loss

    def action_loss(self, features: torch.Tensor, batch: Mapping[str, Any]) -> torch.Tensor:
        """The action loss on features (B, S, W), all inputs repeated for every copy."""
        head, draws, repeats = self.model.action_model, self.model.draws, self.model.config.repeated_diffusion_steps
        config = head.config
        features = features.repeat(repeats, 1, 1)
        actions, mask = batch["action"].repeat(repeats, 1, 1), batch["action_mask"].repeat(repeats, 1, 1)
        state = batch["state"].repeat(repeats, 1, 1) if "state" in batch else None
        noise = draws.randn(actions.shape, device=actions.device)
        beta = draws.beta(config.noise_beta_alpha, config.noise_beta_beta, actions.shape[0], device=actions.device)
        time = beta / config.noise_s
        predicted = self._head(
            features, interpolate(actions, noise, time), discretise(time, config.num_timestep_buckets), state
        )
        return masked_mean_square(predicted, velocity_target(actions, noise), mask)

    def sample(self, features: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
        """Actions (B, H, D) by Euler steps."""
        head, draws = self.model.action_model, self.model.draws
        config, size = head.config, features.shape[0]
        actions = draws.randn((size, config.action_horizon, config.action_dim), device=features.device)
        for bucket in euler_times(config.num_inference_timesteps, config.num_timestep_buckets):
            velocity = self._head(features, actions, torch.full((size,), bucket), state)
            actions = actions - velocity / config.num_inference_timesteps
        return actions

    def _head(
        self, features: torch.Tensor, actions: torch.Tensor, time: torch.Tensor, state: torch.Tensor | None
    ) -> torch.Tensor:
        head = self.model.action_model
        token = head.state_encoder(state) if state is not None and head.state_encoder is not None else None
        return head._velocity(actions, time, head.model.encode_context(features), token)


@contextlib.contextmanager
def _library_layers(vae: torch.nn.Module) -> Iterator[None]:
    """Undo our model's choice of faster layers."""
    library = {ours: theirs for theirs, ours in wan.REPLACEMENTS.items()}
    for module in vae.modules():
        module.__class__ = library.get(type(module), type(module))
    try:
        yield
    finally:
        wan.speed_up(vae)


@contextlib.contextmanager
def _resize_without_torchvision() -> Iterator[None]:
    """The library's forward resizes its padding mask with torchvision; torch's own function does the same."""
    nearest = types.SimpleNamespace(NEAREST="nearest")
    resize = types.SimpleNamespace(
        resize=lambda image, size, interpolation: functional.interpolate(image, size=size, mode=interpolation)
    )
    before = getattr(transformer_cosmos, "transforms", None)
    transformer_cosmos.transforms = types.SimpleNamespace(functional=resize, InterpolationMode=nearest)
    try:
        yield
    finally:
        if before is None:
            del transformer_cosmos.transforms
        else:
            transformer_cosmos.transforms = before
