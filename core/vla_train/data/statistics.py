"""Statistics of table columns: computed, cached outside the dataset, sliced into parts and merged over datasets."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vla_train.data import cache
from vla_train.data.errors import DataError
from vla_train.data.modality import VectorPart
from vla_train.data.tables import Columns, read_columns

log = logging.getLogger(__name__)

STATISTICS = ("mean", "std", "min", "max", "q01", "q99")
# column or part name -> statistic -> one value per dimension
Statistics = dict[str, dict[str, list[float]]]

_CACHE_FORMAT = 2


def column_statistics(paths: Sequence[Path], episodes: Collection[int] | None = None) -> Statistics:
    """Mean, std (population), min, max and the 1 % and 99 % quantiles of every numeric column over all rows.

    Computed in float32 on the rows of `paths` in the order given.

    Args:
        paths: tables.
        episodes: whose rows count; null = all rows.

    Raises:
        DataError: no file, or a damaged one.
    """
    if not paths:
        raise DataError("no table to compute statistics from", fix="check that the dataset has a data/ folder")
    tables = [_rows_of(read_columns(path), episodes) for path in paths]
    common = [name for name in tables[0] if all(name in table for table in tables)]
    result: Statistics = {}
    for name in common:
        parts = [table[name] for table in tables]
        if any(part.dtype == object or part.dtype.kind in "US" for part in parts):
            continue
        if len({part.shape[1:] for part in parts}) > 1:
            raise DataError(
                f"column {name!r} changes its width",
                why=f"widths {sorted({part.shape[1:] for part in parts})} in {paths[0].parent}",
                fix="one dataset must hold one robot",
            )
        rows = np.concatenate([part.astype(np.float32).reshape(len(part), -1) for part in parts])
        # An array of probabilities has every version of numpy interpolate in float64; a number does not.
        low, high = np.quantile(rows, np.array([0.01, 0.99]), axis=0).astype(np.float32)
        result[name] = {
            "mean": np.mean(rows, axis=0).tolist(),
            "std": np.std(rows, axis=0).tolist(),
            "min": np.min(rows, axis=0).tolist(),
            "max": np.max(rows, axis=0).tolist(),
            "q01": low.tolist(),
            "q99": high.tolist(),
        }
    return result


def _rows_of(columns: Columns, episodes: Collection[int] | None) -> Columns:
    if episodes is None:
        return columns
    rows = np.isin(columns["episode_index"].reshape(-1), list(episodes))
    return {name: values[rows] for name, values in columns.items()}


def dataset_statistics(
    folder: Path, paths: Sequence[Path], *, whole: bool, episodes: Collection[int] | None = None
) -> Statistics:
    """Statistics of the columns of one dataset; nothing is written into its folder.

    Args:
        folder: dataset folder.
        paths: tables that count.
        episodes: whose rows of these tables count; null = all.
        whole: true if `paths` are all of the dataset; only then a `meta/stats_gr00t.json` shipped with it is used.

    Raises:
        DataError: see `column_statistics`.
    """
    shipped = folder / "meta" / "stats_gr00t.json"
    if whole and shipped.is_file():
        found = _complete(cache.load(shipped))
        if found is not None:
            return found
        log.warning("%s is not a complete statistics file; computing them instead", shipped)
    file = cache.content_file("statistics", folder, paths, _CACHE_FORMAT, sorted(episodes) if episodes else None)
    found = _complete(cache.load(file))
    if found is None:
        log.info("computing statistics of %s (%d tables)", folder, len(paths))
        found = column_statistics(paths, episodes)
        cache.store(file, found)
    return found


def part_statistics(columns: Statistics, parts: Mapping[str, VectorPart], where: Path) -> Statistics:
    """Statistics of named parts, cut out of those of their columns.

    Raises:
        DataError: a column has no statistics or is narrower than a part needs.
    """
    result: Statistics = {}
    for name, part in parts.items():
        stats = columns.get(part.column)
        width = len(stats["mean"]) if stats else 0
        if stats is None or width < part.end:
            raise DataError(
                f"{where}: no statistics for {name!r}",
                why=f"it is {part.column}[{part.start}:{part.end}], the column has {width} dimensions",
                fix="correct meta/modality.json",
            )
        result[name] = {key: list(stats[key][part.start : part.end]) for key in STATISTICS}
    return result


def merge_statistics(per_dataset: Sequence[Statistics], weights: Sequence[float]) -> Statistics:
    """Statistics of a mixture from those of its members.

    mean = sum w m; std = sqrt(sum w (s^2 + m^2) - mean^2); min, q01 = smallest, max, q99 = largest of the members.

    Args:
        per_dataset: statistics by part name; all with the same names and widths.
        weights: sampling weight of each member, any scale.

    Raises:
        DataError: the members do not have the same parts.
    """
    first = per_dataset[0]
    for other in per_dataset[1:]:
        if {k: len(v["mean"]) for k, v in other.items()} != {k: len(v["mean"]) for k, v in first.items()}:
            raise DataError(
                "datasets that share statistics have different parts",
                why=f"{sorted(first)} against {sorted(other)} (or the same names with other widths)",
                fix="give their robots different tags: data.robots.<name>.tag",
            )
    share = np.asarray(weights, dtype=np.float64)
    share = share / share.sum()
    merged: Statistics = {}
    for name in first:
        values = {key: np.asarray([stats[name][key] for stats in per_dataset], np.float64) for key in STATISTICS}
        mean = np.zeros(values["mean"].shape[1])
        square = np.zeros_like(mean)
        for weight, m, s in zip(share, values["mean"], values["std"], strict=True):
            mean += weight * m
            square += weight * (s**2 + m**2)
        merged[name] = {
            "mean": mean.tolist(),
            # Rounding may leave a tiny negative variance for a constant dimension.
            "std": np.sqrt(np.maximum(square - mean**2, 0.0)).tolist(),
            "min": values["min"].min(axis=0).tolist(),
            "max": values["max"].max(axis=0).tolist(),
            "q01": values["q01"].min(axis=0).tolist(),
            "q99": values["q99"].max(axis=0).tolist(),
        }
    return merged


def cache_folder() -> Path:
    """Where statistics are kept."""
    return cache.cache_folder("statistics")


def _complete(raw: Any) -> Statistics | None:
    complete = isinstance(raw, dict) and all(
        isinstance(stats, dict) and all(key in stats for key in STATISTICS) for stats in raw.values()
    )
    return raw if complete else None
