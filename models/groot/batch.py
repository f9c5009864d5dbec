"""From samples to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

_STACKED = ("state", "action", "action_mask")


def collate(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A batch; texts are padded on the left."""
    length = max(len(sample["input_ids"]) for sample in samples)
    ids = torch.stack(
        [
            torch.nn.functional.pad(s["input_ids"], (length - len(s["input_ids"]), 0), value=s["pad_token_id"])
            for s in samples
        ]
    )
    real = torch.tensor([len(sample["input_ids"]) for sample in samples])
    slots = [int(sample["embodiment_id"]) for sample in samples]
    # Only there for a model that keeps features.
    named = {"content_ids": [sample["content_id"] for sample in samples]} if "content_id" in samples[0] else {}
    return {
        **named,
        **{key: torch.from_numpy(np.stack([sample[key] for sample in samples])) for key in _STACKED},
        "embodiment_id": torch.tensor(slots),
        "embodiment_ids": slots,
        "input_ids": ids,
        "attention_mask": (torch.arange(length)[None, :] >= length - real[:, None]).long(),
        "pixel_values": torch.cat([sample["pixel_values"] for sample in samples]),
        "image_grid_thw": torch.cat([sample["image_grid_thw"] for sample in samples]),
        "sample_ids": [sample["sample_id"] for sample in samples],
    }
