"""Samples to batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vla_train.data.errors import DataError


def padded(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (T, D) as float16 (T, width), zero-padded or truncated, and which of the dimensions are real (width,)."""
    given = min(values.shape[-1], width)
    made = np.zeros((len(values), width), np.float16)
    made[:, :given] = values[:, :given]
    return made, np.arange(width) < given


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch from samples: images, action and state as float32, action_mask as bool, lang and sample_ids as lists.

    Shapes: images (B, T, 3, H, W), action and action_mask (B, A, D), state (B, 1, S). Views that the model resizes
    come as `views`, (B, T, 3, h, w) uint8 by view, instead of images.

    Raises:
        DataError: the model resizes, and cameras or sizes differ.
    """
    if "views" not in samples[0]:
        images: dict[str, Any] = {"images": torch.stack([sample["images"] for sample in samples])}
    elif samples[0]["layout"] is None:
        images = {"views": _stacked_views(samples)}
    else:
        images = {"images": _resized(samples)}
    batch: dict[str, Any] = {
        **images,
        "lang": [sample["lang"] for sample in samples],
        "action": torch.from_numpy(np.stack([sample["action"] for sample in samples]).astype(np.float32)),
        "action_mask": torch.from_numpy(np.stack([sample["action_mask"] for sample in samples])),
        "sample_ids": [sample["sample_id"] for sample in samples],
    }
    if "state" in samples[0]:
        batch["state"] = torch.from_numpy(np.stack([sample["state"] for sample in samples]).astype(np.float32))
    return batch


def _resized(samples: list[dict[str, Any]]) -> torch.Tensor:
    """(B, T, 3, H, W) float32; all samples at once, where their frames have one size, saves a copy of them."""
    if len({tuple((name, *view.shape) for name, view in sample["views"].items()) for sample in samples}) == 1:
        return samples[0]["layout"].clip(_stacked_views(samples))
    return torch.stack([sample["layout"].clip(sample["views"]) for sample in samples])


def _stacked_views(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    shapes = {
        tuple((name, *view.shape) for name, view in sample["views"].items()): sample["sample_id"] for sample in samples
    }
    if len(shapes) > 1:
        raise DataError(
            "the samples of a batch have different views",
            why="; ".join(
                f"{sample}: {', '.join(f'{name} {height} x {width}' for name, _, _, height, width in shape)}"
                for shape, sample in shapes.items()
            ),
            fix="set model.resize_on_device=false: frames of different sizes are resized one by one in the workers",
        )
    return {name: torch.stack([sample["views"][name] for sample in samples]) for name in samples[0]["views"]}
