"""Camera frames to the clip the video model sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F


def resize(images: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """(..., 3, H, W) uint8 to (..., 3, size[0], size[1]) float32 in [0, 1].

    Bilinear, pixel centres aligned, no antialiasing: what DiT4DiT's checkpoints were trained on.
    """
    images = images.float() / 255.0
    if tuple(images.shape[-2:]) == (size[0], size[1]):
        return images
    resized = F.interpolate(images.flatten(0, -4), size=(size[0], size[1]), mode="bilinear", align_corners=False)
    return resized.unflatten(0, images.shape[:-3])


def channels_first(frames: np.ndarray) -> torch.Tensor:
    """(T, H, W, 3) uint8 to (T, 3, H, W) uint8."""
    return torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()


def resize_frames(frames: np.ndarray, size: Sequence[int]) -> torch.Tensor:
    """(T, H, W, 3) uint8 to (T, 3, size[0], size[1]) float32 in [0, 1], as `resize`."""
    return resize(channels_first(frames), size)


@dataclass(frozen=True)
class Layout:
    """How the views of all cameras become one clip; see `arrange`."""

    size: tuple[int, ...]
    extra_views: str

    def clip(self, views: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Views (..., T, 3, h, w) uint8 to (..., T, 3, height, width) float32 in [0, 1]."""
        return arrange({name: resize(view, self.size) for name, view in views.items()}, self.extra_views)


def lay_out(video: Mapping[str, np.ndarray], size: Sequence[int], extra_views: str) -> torch.Tensor:
    """One clip (T, 3, height, views * width) from the frames of all cameras, (T, H, W, 3) uint8 each; see `arrange`."""
    return arrange({name: resize_frames(frames, size) for name, frames in video.items()}, extra_views)


def raw_views(video: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Frames as decoded, (T, 3, H, W) uint8, under names that fit every robot: `primary_0`, ..., `wrist_0`, ..."""
    named: dict[str, torch.Tensor] = {}
    for kind in ("primary", "wrist"):
        cameras = [name for name in video if ("wrist" in name) == (kind == "wrist")]
        named |= {f"{kind}_{number}": channels_first(video[name]) for number, name in enumerate(cameras)}
    return named


def arrange(views: Mapping[str, torch.Tensor], extra_views: str) -> torch.Tensor:
    """One clip from the views of all cameras, resized already.

    Views are placed side by side, those with "wrist" in their name to the right of the others.

    Args:
        views: by camera in order, (..., T, 3, H, W) each.
        extra_views: what happens to a second camera that is not on the wrist: "concat" places it beside the first,
            "as_frames" appends its frames to the clip as if they were later ones.

    Returns:
        (..., T, 3, H, views * W).
    """
    wrist = [view for name, view in views.items() if "wrist" in name]
    primary = [view for name, view in views.items() if "wrist" not in name]
    if extra_views == "as_frames" and not primary:
        return torch.cat(wrist, dim=-4)
    if extra_views == "as_frames":
        # All primary frames in a row; wrist frames go beside them only if they come out in whole clips.
        clip, rest = torch.cat(primary, dim=-4), torch.cat(wrist, dim=-4) if wrist else None
        if rest is None:
            return clip
        frames = clip.shape[-4]
        if rest.shape[-4] % frames:
            return torch.cat([clip, rest], dim=-4)
        return torch.cat([clip, *rest.split(frames, dim=-4)], dim=-1)
    beside = [*primary, *wrist]
    return beside[0] if len(beside) == 1 else torch.cat(beside, dim=-1)
