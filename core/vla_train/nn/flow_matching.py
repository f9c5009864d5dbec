"""Flow matching on straight paths (Lipman et al. 2022; Liu et al. 2022) with t = 0 for data and t = 1 for noise."""

from __future__ import annotations

import torch


def interpolate(clean: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """x_t = (1 - t) x_0 + t z. `time` is (B,) and is broadcast over the other axes of `clean`."""
    weight = time.reshape(-1, *([1] * (clean.ndim - 1)))
    return (1 - weight) * clean + weight * noise


def velocity_target(clean: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """dx_t/dt = z - x_0, the regression target along the path."""
    return noise - clean


def discretise(time: torch.Tensor, buckets: int) -> torch.Tensor:
    """trunc(t * buckets) as int64, computed in float32 because bfloat16 would merge neighbouring buckets."""
    return (time.to(torch.float32) * buckets).long()


def euler_times(steps: int, buckets: int) -> list[int]:
    """Buckets of the Euler steps t = 1 - k/steps, k = 0 .. steps-1.

    The product is truncated in Python's float arithmetic, so 10 steps of 1000 buckets end with 199 and 99.
    """
    return [int((1 - k / float(steps)) * buckets) for k in range(steps)]


def masked_mean_square(prediction: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """sum((prediction - target)^2 * mask) / sum(mask) over the whole batch."""
    weight = mask.to(prediction.dtype)
    return ((prediction - target).square() * weight).sum() / weight.sum()
