"""Image augmentations of training: rotation and colour jitter, on arrays (..., H, W, 3) uint8."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional

_GRAY = np.asarray([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601


def rotate(frames: np.ndarray, degrees: float) -> np.ndarray:
    """Rotate about the centre; what lies outside is mirrored in."""
    if not degrees:
        return frames
    height, width = frames.shape[-3:-1]
    pixels = torch.from_numpy(np.ascontiguousarray(frames.reshape(-1, height, width, 3))).permute(0, 3, 1, 2).float()
    cos, sin, ratio = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), width / height
    matrix = torch.tensor([[cos, -sin / ratio, 0.0], [sin * ratio, cos, 0.0]]).expand(len(pixels), 2, 3)
    grid = functional.affine_grid(matrix, list(pixels.shape), align_corners=False)
    turned = functional.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    done = turned.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return done.reshape(frames.shape)


def jitter(frames: np.ndarray, factors: Mapping[str, float], order: Sequence[str]) -> np.ndarray:
    """Change colours.

    Args:
        frames: images.
        factors: of brightness, contrast and saturation (1 changes nothing); of hue the shift, 1 being a full circle.
        order: names in the order they are applied.
    """
    if not order:
        return frames
    pixels: np.ndarray = frames.astype(np.float32)
    for name in order:
        factor = factors[name]
        if name == "brightness":
            pixels = pixels * factor
        elif name == "contrast":
            mean = (pixels @ _GRAY).mean(axis=(-2, -1), keepdims=True)[..., None]
            pixels = mean + (pixels - mean) * factor
        elif name == "saturation":
            gray = (pixels @ _GRAY)[..., None]
            pixels = gray + (pixels - gray) * factor
        else:
            pixels = _shift_hue(pixels, factor)
        pixels = pixels.clip(0, 255)
    return np.rint(pixels).astype(np.uint8)


def _shift_hue(pixels: np.ndarray, shift: float) -> np.ndarray:
    """Turn the hue of HSV by `shift` circles, saturation and value staying."""
    high, low = pixels.max(-1), pixels.min(-1)
    spread = np.maximum(high - low, 1e-6)
    red, green, blue = (pixels[..., channel] for channel in range(3))
    sector = np.where(
        high == red,
        ((green - blue) / spread) % 6,
        np.where(high == green, (blue - red) / spread + 2, (red - green) / spread + 4),
    )
    position = (sector + 6 * shift) % 6
    # f(n) = v - (v - low) max(0, min(k, 4 - k, 1)), k = (n + hue sector) mod 6, n = 5, 3, 1 for red, green, blue
    k = (np.asarray([5.0, 3.0, 1.0], np.float32) + position[..., None]) % 6
    part = np.minimum(np.minimum(k, 4 - k), 1).clip(0)
    return high[..., None] - (high - low)[..., None] * part
