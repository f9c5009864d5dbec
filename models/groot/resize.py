"""Resizing images as the tools do that published checkpoints were trained with."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

_FIXED = 2048  # fixed-point unit of the interpolation coefficients


def area_resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """OpenCV's INTER_AREA: pixel means when shrinking, its own linear interpolation when growing an axis.

    Args:
        image: (..., H, W, C) uint8.

    Returns:
        (..., height, width, C) uint8, at most one level off.
    """
    old_height, old_width = image.shape[-3:-1]
    if (old_height, old_width) == (height, width):
        return image
    if height <= old_height and width <= old_width:
        rows, columns = _area_weights(old_height, height), _area_weights(old_width, width)
        # By torch, which keeps to one thread in a data worker; numpy's BLAS takes all cores in each of them.
        pixels = torch.from_numpy(np.ascontiguousarray(image)).float()
        narrow = torch.einsum("wx,...hxc->...hwc", columns, pixels)
        means = torch.einsum("yh,...hwc->...ywc", rows, narrow).numpy()
        # Halving both axes is a case of its own there: integer arithmetic that rounds halves up.
        halved = (old_height, old_width) == (2 * height, 2 * width)
        return (np.floor(means + 0.5) if halved else np.rint(means)).clip(0, 255).astype(np.uint8)
    first, share = _linear_taps(old_width, width)
    wide = image.astype(np.int32)
    after = np.minimum(first + 1, old_width - 1)
    wide = wide[..., first, :] * (_FIXED - share)[:, None] + wide[..., after, :] * share[:, None]
    first, share = _linear_taps(old_height, height)
    after = np.minimum(first + 1, old_height - 1)
    weight = share[:, None, None]
    upper, lower = wide[..., first, :, :] >> 4, wide[..., after, :, :] >> 4
    total = ((upper * (_FIXED - weight)) >> 16) + ((lower * weight) >> 16)
    return ((total + 2) >> 2).clip(0, 255).astype(np.uint8)


def interpolate(image: np.ndarray, height: int, width: int, mode: str) -> np.ndarray:
    """Antialiased "bilinear" or "bicubic" resizing of (..., H, W, C) uint8 images."""
    if image.shape[-3:-1] == (height, width):
        return image
    lead = image.shape[:-3]
    pixels = torch.from_numpy(np.ascontiguousarray(image.reshape(-1, *image.shape[-3:]))).permute(0, 3, 1, 2)
    done = functional.interpolate(pixels, size=(height, width), mode=mode, antialias=True, align_corners=False)
    return done.permute(0, 2, 3, 1).numpy().reshape(*lead, height, width, image.shape[-1])


@lru_cache(maxsize=64)
def _area_weights(old: int, new: int) -> torch.Tensor:
    """(new, old) float32: share of every old pixel in every new one."""
    edges = np.arange(new + 1) * (old / new)
    left, right = edges[:-1, None], np.minimum(edges[1:, None], old)
    pixel = np.arange(old)[None, :]
    overlap = np.clip(np.minimum(right, pixel + 1) - np.maximum(left, pixel), 0.0, None)
    overlap[overlap < 1e-3] = 0.0
    return torch.from_numpy((overlap / overlap.sum(axis=1, keepdims=True)).astype(np.float32))


@lru_cache(maxsize=64)
def _linear_taps(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """Left pixel and fixed-point share of its right neighbour for every new pixel."""
    scale = old / new
    first = np.floor(np.arange(new) * scale).astype(np.int64)
    share = (np.arange(new) + 1) - (first + 1) / scale
    share = np.where(share <= 0, 0.0, share - np.floor(share))
    share[first >= old - 1] = 0.0
    return np.minimum(first, old - 1), np.rint(share * _FIXED).astype(np.int32)
