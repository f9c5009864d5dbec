"""Losses on the future video."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from vla_dit4dit.config import BackboneConfig, FlowMatchingConfig
from vla_train.nn import Draws, interpolate, velocity_target

# (latents, time per latent frame) -> velocity
Velocity = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def draw_times(config: FlowMatchingConfig, batch: int, device: torch.device, draws: Draws) -> torch.Tensor:
    """Times (B,) in float32: logit-normal or uniform, a share of them moved to high noise.

    Both tensors of the high-noise branch are drawn whenever it is enabled.
    """
    if config.time_distribution == "logit_normal":
        time = torch.sigmoid(draws.randn((batch,), device=device))
    else:
        time = draws.rand((batch,), device=device)
    if config.high_sigma_ratio and config.high_sigma_ratio > 0:
        assert config.high_sigma_min is not None, "the configuration is validated"
        chosen = draws.rand((batch,), device=device) < config.high_sigma_ratio
        high = draws.rand((batch,), device=device) * (1.0 - config.high_sigma_min) + config.high_sigma_min
        time = torch.where(chosen, high, time)
    return time


def flow_matching_loss(
    velocity: Velocity,
    clean: torch.Tensor,
    latents: torch.Tensor,
    observed: int,
    config: BackboneConfig,
    draws: Draws,
) -> torch.Tensor:
    """Mean squared error of the velocity at one drawn time per sample.

    Args:
        velocity: the transformer; observed frames of its input are filled in by it.
        clean: (B, C, F, h, w) normalised latents of the future, F >= 1.
        latents: (B, C, Tl, h, w), gives the shape of the model's input.
        observed: observed latent frames before the future.
        config: how the time is drawn and rounded.
        draws: time, then noise like `clean`, then noise like `latents` for frames beyond the future.
    """
    time = draw_times(config.flow_matching, clean.shape[0], clean.device, draws)
    noise = draws.randn_like(clean)
    noisy = draws.randn_like(latents)
    supervised = slice(observed, observed + clean.shape[2])
    noisy[:, :, supervised] = interpolate(clean, noise, time)
    frame_times = latents.new_zeros(latents.shape[0], 1, latents.shape[2], 1, 1)
    frame_times[:, :, supervised] = round_time(time, config.time_dtype).view(-1, 1, 1, 1, 1)
    predicted = velocity(noisy, frame_times)[:, :, supervised]
    target = velocity_target(clean, noise).to(predicted.dtype)
    return functional.mse_loss(predicted.float(), target.float())


def skip_flow_matching_draws(
    clean_shape: tuple[int, ...], latents: torch.Tensor, config: BackboneConfig, draws: Draws
) -> None:
    """Draw what `flow_matching_loss` would, so that the next draws are the same with and without it."""
    draw_times(config.flow_matching, latents.shape[0], latents.device, draws)
    draws.randn_like(latents.new_empty(clean_shape))
    draws.randn_like(latents)


def pixel_loss(
    decoded: torch.Tensor, future: torch.Tensor, *, absolute: bool, range_by_minimum: bool, last_frames: bool
) -> torch.Tensor:
    """Mean absolute or squared error between decoded and true future frames in [0, 1]; 0 if there are none.

    Args:
        decoded: (B, 3, T, H, W) in [-1, 1], frame 0 is the observation.
        future: (B, 3, F, H, W) in [0, 1].
        absolute: L1 if true, else squared error.
        range_by_minimum: map to [0, 1] only if the batch holds a value below -0.5.
        last_frames: where T < 1 + F, compare the last F decoded frames; a single one is compared with all.
    """
    unit = (decoded + 1.0) / 2.0
    if range_by_minimum:
        unit = torch.where(decoded.detach().min() < -0.5, unit, decoded)
    given, wanted = unit.shape[2], future.shape[2]
    if last_frames and given in (1, wanted):
        unit = unit[:, :, -wanted:].expand_as(future)
    else:
        frames = min(given - 1, wanted)
        if not frames:
            return unit.new_zeros(())
        unit, future = unit[:, :, 1 : 1 + frames], future[:, :, :frames]
    unit, future = unit.clamp(0.0, 1.0), future.float()
    return functional.l1_loss(unit, future) if absolute else functional.mse_loss(unit, future)


def round_time(time: torch.Tensor, dtype: str) -> torch.Tensor:
    """`time` rounded to a dtype, as float32."""
    return time.to(getattr(torch, dtype)).float()
