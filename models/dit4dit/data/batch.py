"""Samples to batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def padded(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (T, D) as float16 (T, width), zero-padded or truncated, and which of the dimensions are real (width,)."""
    values = values.astype(np.float16)[:, :width]
    real = np.arange(width) < values.shape[-1]
    return np.pad(values, ((0, 0), (0, width - values.shape[-1]))), real


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch from samples: images, action and state as float32, action_mask as bool, lang and sample_ids as lists.

    Shapes: images (B, T, 3, H, W), action and action_mask (B, A, D), state (B, 1, S).
    """
    batch: dict[str, Any] = {
        "images": torch.stack([sample["images"] for sample in samples]),
        "lang": [sample["lang"] for sample in samples],
        "action": torch.from_numpy(np.stack([sample["action"] for sample in samples]).astype(np.float32)),
        "action_mask": torch.from_numpy(np.stack([sample["action_mask"] for sample in samples])),
        "sample_ids": [sample["sample_id"] for sample in samples],
    }
    if "state" in samples[0]:
        batch["state"] = torch.from_numpy(np.stack([sample["state"] for sample in samples]).astype(np.float32))
    return batch
