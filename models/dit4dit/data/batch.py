"""Samples to batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vla_train.data.errors import DataError


def padded(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (T, D) as float16 (T, width), zero-padded or truncated, and which of the dimensions are real (width,)."""
    values = values.astype(np.float16)[:, :width]
    real = np.arange(width) < values.shape[-1]
    return np.pad(values, ((0, 0), (0, width - values.shape[-1]))), real


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch from samples: images, action and state as float32, action_mask as bool, lang and sample_ids as lists.

    Shapes: images (B, T, 3, H, W), action and action_mask (B, A, D), state (B, 1, S). Samples with raw views give
    `views`, (B, T, 3, h, w) uint8 by view, instead of images.

    Raises:
        DataError: raw views of different cameras or sizes.
    """
    if "views" in samples[0]:
        images: dict[str, Any] = {"views": _stacked_views(samples)}
    else:
        images = {"images": torch.stack([sample["images"] for sample in samples])}
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
