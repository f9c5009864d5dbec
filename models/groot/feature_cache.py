"""Features of training samples on disk: the frozen backbone sees every sample once, whatever the number of epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vla_groot.backbone import Backbone
from vla_groot.errors import ConfigError
from vla_groot.features import Features, split_tokens
from vla_train.data.cache import cache_folder
from vla_train.frozen_outputs import FrozenOutputs, digest
from vla_train.tensor_store import TensorStore

#: Raise it when the computation of features changes their values.
VERSION = 1
OPTION = "model.feature_cache"


def content_id(input_ids: torch.Tensor, pixel_values: torch.Tensor | None, grids: torch.Tensor | None) -> str:
    """Names what the backbone sees of one sample, without padding."""
    return digest(tensor for tensor in (input_ids, pixel_values, grids) if tensor is not None)


class FeatureCache:
    """Features by sample, keyed by tokens and patches, the backbone's weights, the precision and the chip.

    Args:
        backbone: computes them, without gradients.
        chip: name of the backend.
        limit: bytes of the folder.
        padding_seen: whether the action head looks at padding, which has features only within a batch.
        folder: where the files lie; null for `$XDG_CACHE_HOME/vla-backend/features`.
    """

    def __init__(
        self, backbone: Backbone, chip: str, limit: int, *, padding_seen: bool, folder: Path | None = None
    ) -> None:
        self.backbone, self.chip, self.padding_seen = backbone, chip, padding_seen
        store = TensorStore(folder or cache_folder("features"), limit, "sample's features")
        self.outputs = FrozenOutputs(
            backbone, store, version=VERSION, what="the backbone", option=OPTION, error=ConfigError
        )

    def features(self, batch: Mapping[str, Any]) -> Features:
        """As `Backbone.forward` of the batch; zeros at padding.

        Raises:
            ConfigError: the backbone is trained, the data is augmented at random, or padding would be seen.
        """
        ids, mask = batch["input_ids"], batch["attention_mask"] == 1
        image_mask = ids == self.backbone.image_token_id
        text, image = split_tokens(mask, image_mask, ids.device)
        lengths = mask.sum(1).tolist()
        if self.padding_seen and min(lengths, default=0) < ids.shape[1]:
            raise ConfigError(
                f"{OPTION} is true, but samples of different length are in one batch.",
                why="the action head of this checkpoint looks at padding, whose features depend on the rest of the "
                "batch",
                fix=f"set model.architecture.mask_feature_padding=true, or {OPTION}=false",
            )
        samples = _samples(batch, lengths, image_mask, self.backbone.merge)
        device = ids.device.type
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        weights = next(self.backbone.parameters()).dtype
        rows = self.outputs.outputs(
            batch.get("content_ids") or [content_id(*sample) for sample in samples],
            batch.get("sample_ids"),
            (self.chip, weights, autocast, self.backbone.qwen.config._attn_implementation),
            lambda at: self._alone(*samples[at]),
        )
        hidden = rows[0].new_zeros((*ids.shape, rows[0].shape[-1]), device=ids.device)
        for at, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            hidden[at, ids.shape[1] - length :] = row.to(ids.device, non_blocking=True)
        return Features(hidden, mask, image_mask, text, image)

    def _alone(self, ids: torch.Tensor, pixels: torch.Tensor | None, grids: torch.Tensor | None) -> torch.Tensor:
        """(S, F) of one sample."""
        return self.backbone(ids[None], torch.ones_like(ids)[None], pixels, grids).hidden[0]


_Sample = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def _samples(batch: Mapping[str, Any], lengths: Sequence[int], image_mask: torch.Tensor, merge: int) -> list[_Sample]:
    """Tokens without padding, patches and grids of every sample."""
    ids, pixels, grids = batch["input_ids"], batch.get("pixel_values"), batch.get("image_grid_thw")
    if pixels is None or grids is None:
        return [(row[len(row) - length :], None, None) for row, length in zip(ids, lengths, strict=True)]
    found: list[_Sample] = []
    patches = grids.prod(-1).tolist()
    number = start = 0
    for row, length, tokens in zip(ids, lengths, image_mask.sum(1).tolist(), strict=True):
        first, begin = number, start
        while number < len(patches) and start - begin < tokens * merge**2:
            start += patches[number]
            number += 1
        found.append((row[len(row) - length :], pixels[begin:start], grids[first:number]))
    return found
