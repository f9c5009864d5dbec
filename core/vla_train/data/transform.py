"""From raw state or action parts to model inputs and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from vla_train.data.errors import DataError
from vla_train.data.modality import VectorPart
from vla_train.data.normalize import Normalizer
from vla_train.data.robot import Part
from vla_train.data.rotations import bounds, check_representation, convert_rotation
from vla_train.data.statistics import Statistics


class VectorTransform:
    """Rotates, normalises and concatenates the parts of one group; `inverse` undoes it.

    `sincos` turns a part of width D into all its sines followed by all its cosines (width 2 D, angles in radians).

    Args:
        parts: parts in the order they are concatenated.
        layout: their place in the table.
        statistics: merged statistics by part name.
        where: named in errors.

    Raises:
        DataError: a rotation without a source representation, or normalised in a way that makes no sense.
    """

    def __init__(
        self, parts: Sequence[Part], layout: Mapping[str, VectorPart], statistics: Statistics, where: Path
    ) -> None:
        self.parts = tuple(parts)
        self._sources: dict[str, str] = {}
        self._normalizers: dict[str, Normalizer] = {}
        self.widths: list[int] = []
        for part in self.parts:
            place = layout[part.name]
            width, stats = place.width, statistics[part.name]
            if part.rotation and part.rotation != place.rotation_type:
                stats = _rotation_bounds(part, place, where)
                self._sources[part.name] = str(place.rotation_type)
                width = convert_rotation(np.eye(1, width), str(place.rotation_type), part.rotation).shape[-1]
            if part.mode != "sincos":
                self._normalizers[part.name] = Normalizer(part.mode, stats)
            self.widths.append(2 * width if part.mode == "sincos" else width)

    @property
    def width(self) -> int:
        """Dimensions of the concatenated vector."""
        return sum(self.widths)

    def forward_parts(self, raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every part (T, D) transformed, in order; computed in the dtype given."""
        result = {}
        for part in self.parts:
            x = raw[part.name]
            if part.name in self._sources:
                x = convert_rotation(x, self._sources[part.name], str(part.rotation))
            if part.mode == "sincos":
                # torch's sine: numpy's differs from it in the last bit.
                angle = torch.from_numpy(x)
                x = torch.cat([angle.sin(), angle.cos()], dim=-1).numpy()
            else:
                x = self._normalizers[part.name].forward(x)
            result[part.name] = x
        return result

    def forward(self, raw: Mapping[str, np.ndarray]) -> np.ndarray:
        """The parts transformed and concatenated, (T, width)."""
        return np.concatenate(list(self.forward_parts(raw).values()), axis=-1)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Undo `forward`: (..., >= width) to the dataset's own units, (..., sum of the parts' widths).

        Dimensions beyond `width` (zero padding) are dropped.

        Raises:
            DataError: fewer dimensions than `width`.
        """
        if x.shape[-1] < self.width:
            raise DataError(
                f"{x.shape[-1]} dimensions cannot be turned back into {', '.join(part.name for part in self.parts)}",
                why=f"these parts have {self.width} dimensions",
                fix="raise data.max_action_dim",
            )
        pieces, start = [], 0
        for part, width in zip(self.parts, self.widths, strict=True):
            piece = x[..., start : start + width]
            start += width
            if part.mode == "sincos":
                half = width // 2
                piece = np.arctan2(piece[..., :half], piece[..., half:])
            else:
                piece = self._normalizers[part.name].inverse(piece)
            if part.name in self._sources:
                piece = convert_rotation(piece, str(part.rotation), self._sources[part.name])
            pieces.append(piece)
        return np.concatenate(pieces, axis=-1)


def _rotation_bounds(part: Part, place: VectorPart, where: Path) -> dict[str, list[float]]:
    if place.rotation_type is None:
        raise DataError(
            f"{where}: {part.name!r} does not say how it represents rotations",
            why=f"the robot wants it as {part.rotation}",
            fix='add "rotation_type" to the part in meta/modality.json',
        )
    check_representation(place.rotation_type, f"rotation_type of {part.name!r} in {where}")
    allowed = ("none", "min_max") if place.absolute else ("none",)
    if part.mode not in allowed:
        raise DataError(
            f"the converted rotation {part.name!r} cannot be normalised by {part.mode!r}",
            why="the statistics of the dataset are those of another representation",
            fix=f"use {' or '.join(allowed)}",
        )
    return bounds(str(part.rotation))
