"""Camera frames to the clip the video model sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F


def resize_frames(frames: np.ndarray, size: Sequence[int]) -> torch.Tensor:
    """(T, H, W, 3) uint8 to (T, 3, size[0], size[1]) float32 in [0, 1].

    Bilinear, pixel centres aligned, no antialiasing: what DiT4DiT's checkpoints were trained on.
    """
    images = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous().float() / 255.0
    if tuple(images.shape[-2:]) == (size[0], size[1]):
        return images
    return F.interpolate(images, size=(size[0], size[1]), mode="bilinear", align_corners=False)


def lay_out(video: Mapping[str, np.ndarray], size: Sequence[int], extra_views: str) -> torch.Tensor:
    """One clip from the frames of all cameras.

    Views are placed side by side, those with "wrist" in their name to the right of the others.

    Args:
        video: frames by camera in order, (T, H, W, 3) uint8 each.
        size: (height, width) of every view.
        extra_views: what happens to a second camera that is not on the wrist: "concat" places it beside the first,
            "as_frames" appends its frames to the clip as if they were later ones.

    Returns:
        (T, 3, height, views * width) float32 in [0, 1].
    """
    views = {name: resize_frames(frames, size) for name, frames in video.items()}
    wrist = [view for name, view in views.items() if "wrist" in name]
    primary = [view for name, view in views.items() if "wrist" not in name]
    if extra_views == "as_frames" and primary:
        # All primary frames in a row; wrist frames go beside them only if they come out in whole clips.
        clip, rest = torch.cat(primary), torch.cat(wrist) if wrist else None
        if rest is None:
            return clip
        if len(rest) % len(clip):
            return torch.cat([clip, rest])
        return torch.cat([clip, *rest.split(len(clip))], dim=-1)
    beside = [*primary, *wrist]
    return beside[0] if len(beside) == 1 else torch.cat(beside, dim=-1)
