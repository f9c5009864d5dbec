"""Normalisation of states and actions, and its inverse. Computed in the data's own dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vla_train.data.errors import DataError

# Statistics each mode reads.
MODES: dict[str, tuple[str, ...]] = {
    "min_max": ("min", "max"),
    "q99": ("q01", "q99"),
    "mean_std": ("mean", "std"),
    "scale": ("min", "max"),
    "binary": (),
    "none": (),
}


def check_mode(mode: str, where: str, *, extra: Sequence[str] = ()) -> None:
    """Raise `DataError` unless `mode` is a normaliser mode (or one of `extra`); `where` names the config key."""
    if mode not in MODES and mode not in extra:
        raise DataError(
            f"unknown normalisation mode {mode!r}", why=f"in {where}", fix=f"use one of {', '.join([*MODES, *extra])}"
        )


class Normalizer:
    """Maps one quantity to the model's range and back.

    | mode     | forward                                  | constant dimension | range           |
    |----------|------------------------------------------|--------------------|-----------------|
    | min_max  | 2 (x - min) / (max - min) - 1            | 0                  | [-1, 1] on data |
    | q99      | 2 (x - q01) / (q99 - q01) - 1, clipped   | x, clipped         | [-1, 1]         |
    | mean_std | (x - mean) / std                         | x                  |                 |
    | scale    | x / max(abs(min), abs(max))              | 0                  | [-1, 1] on data |
    | binary   | 1 if x > 0.5 else 0                      |                    | {0, 1}          |
    | none     | x                                        |                    |                 |

    Args:
        mode: see above.
        statistics: one vector of length D per statistic the mode reads; others are ignored.

    Raises:
        DataError: unknown mode, or a statistic is missing.
    """

    def __init__(self, mode: str, statistics: Mapping[str, Any]) -> None:
        check_mode(mode, "Normalizer")
        missing = [name for name in MODES[mode] if name not in statistics]
        if missing:
            raise DataError(
                f"normalisation mode {mode!r} lacks statistics",
                why=f"missing: {', '.join(missing)}; given: {', '.join(statistics) or 'none'}",
                fix="recompute the statistics of the dataset",
            )
        self.mode = mode
        self._stats = {name: np.asarray(statistics[name], dtype=np.float64) for name in MODES[mode]}

    def _bounds(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        first, second = (self._stats[name].astype(dtype) for name in MODES[self.mode])
        return first, second

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Normalise `x` (..., D); returns the same shape and dtype."""
        if self.mode == "none":
            return x
        if self.mode == "binary":
            return (x > 0.5).astype(x.dtype)
        a, b = self._bounds(x.dtype)
        one = np.ones((), x.dtype)
        if self.mode == "mean_std":
            return np.where(b != 0, (x - a) / np.where(b != 0, b, one), x)
        if self.mode == "scale":
            largest = np.maximum(np.abs(a), np.abs(b))
            return np.where(largest != 0, x / np.where(largest != 0, largest, one), np.zeros((), x.dtype))
        varies = a != b
        scaled = 2 * ((x - a) / np.where(varies, b - a, one)) - 1
        if self.mode == "min_max":
            return np.where(varies, scaled, np.zeros((), x.dtype))
        return np.clip(np.where(varies, scaled, x), -1, 1).astype(x.dtype)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Undo `forward` (up to clipping and thresholds) on `x` (..., D); a constant dimension comes back constant."""
        if self.mode == "none":
            return x
        if self.mode == "binary":
            return (x > 0.5).astype(x.dtype)
        a, b = self._bounds(x.dtype)
        if self.mode == "mean_std":
            return np.asarray(x * b + a)
        if self.mode == "scale":
            return np.asarray(x * np.maximum(np.abs(a), np.abs(b)))
        return np.asarray((x + 1) / 2 * (b - a) + a)
