"""Reading columns of Parquet tables into arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vla_train.data.errors import DataError

Columns = dict[str, np.ndarray]

_EPISODE = "episode_index"


def column_array(column: pa.ChunkedArray) -> np.ndarray:
    """A column as an array: (T,) for scalars, (T, D) for lists of equal length; the stored number type is kept.

    Vectors stored as JSON text (`"[0.1, 0.2]"`) are parsed to float64. Other text stays an object array.

    Raises:
        ValueError: rows of different length.
    """
    rows = len(column)
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks] or [[]])
        lengths = set(pc.list_value_length(column).to_pylist())
        if len(lengths) > 1:
            raise ValueError(f"rows of different length: {sorted(lengths, key=str)}")
        if flat.dtype == object:  # lists of lists, e.g. (T, 1, D)
            flat = np.stack([np.asarray(item) for item in flat]).reshape(-1)
        return flat.reshape(rows, -1)
    values: np.ndarray = column.to_numpy()
    if values.dtype == object and rows and isinstance(values[0], str) and values[0].lstrip().startswith("["):
        parsed = np.asarray([json.loads(value) for value in values], dtype=np.float64)
        return parsed.reshape(rows, -1)
    return values


def read_columns(path: Path, names: Iterable[str] | None = None) -> Columns:
    """Columns of a whole file.

    Args:
        path: Parquet file.
        names: columns wanted; those the file lacks are left out. Null = all that can be read as arrays.

    Raises:
        DataError: the file is damaged, or a wanted column cannot be read as an array.
    """
    try:
        present = pq.read_schema(path).names
        wanted = present if names is None else [name for name in dict.fromkeys(names) if name in present]
        table = pq.read_table(path, columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    return _arrays(path, table, wanted, strict=names is not None)


class SharedTable:
    """A Parquet file with the rows of several episodes, told apart by their `episode_index`; stays open.

    Args:
        path: Parquet file.
        names: columns wanted, as for `read_columns`.

    Raises:
        DataError: the file is damaged or has no `episode_index`.
    """

    def __init__(self, path: Path, names: Iterable[str] | None = None) -> None:
        self._path, self._strict = path, names is not None
        try:
            self._file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(path, error) from error
        present = self._file.schema_arrow.names
        if _EPISODE not in present:
            raise DataError(
                f"{path} has no column {_EPISODE!r}",
                why="it holds several episodes, which only this column tells apart",
                fix="copy the file again",
            )
        self._wanted = present if names is None else [name for name in dict.fromkeys(names) if name in present]
        self._groups = [self._episodes_in(group) for group in range(self._file.num_row_groups)]

    def read(self, index: int) -> dict[int, Columns]:
        """Episode `index` and all others that are complete in the row groups read for it.

        Raises:
            DataError: damaged, or the episode is not in this file.
        """
        groups = [i for i, (low, high) in enumerate(self._groups) if low <= index <= high]
        try:
            table = self._file.read_row_groups(groups, columns=[*dict.fromkeys([*self._wanted, _EPISODE])])
        except (OSError, pa.ArrowException) as error:
            raise _damaged(self._path, error) from error
        episodes = table[_EPISODE].to_numpy()
        columns = _arrays(self._path, table, self._wanted, strict=self._strict)
        elsewhere = [bounds for i, bounds in enumerate(self._groups) if i not in groups]
        found: dict[int, Columns] = {}
        for episode in np.unique(episodes).tolist():
            if episode != index and any(low <= episode <= high for low, high in elsewhere):
                continue
            rows = np.flatnonzero(episodes == episode)
            found[episode] = {name: values[rows] for name, values in columns.items()}
        if index not in found:
            raise DataError(
                f"{self._path} has no row of episode {index}",
                why="meta/episodes/ places the episode there",
                fix="download data/ and meta/ again",
            )
        return found

    def _episodes_in(self, group: int) -> tuple[float, float]:
        """Smallest and largest episode of a row group; everything if the file does not say."""
        metadata = self._file.metadata.row_group(group)
        for i in range(metadata.num_columns):
            column = metadata.column(i)
            if column.path_in_schema == _EPISODE and column.statistics is not None and column.statistics.has_min_max:
                return column.statistics.min, column.statistics.max
        return -np.inf, np.inf


def _arrays(path: Path, table: pa.Table, wanted: Iterable[str], *, strict: bool) -> Columns:
    arrays: Columns = {}
    for name in wanted:
        try:
            arrays[name] = column_array(table[name])
        except (ValueError, TypeError, pa.ArrowException) as error:
            if not strict:
                continue
            raise DataError(
                f"column {name!r} of {path} is not a table of numbers",
                why=str(error),
                fix="store one vector of equal length per row",
            ) from error
    return arrays


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        f"cannot read {path}", why=str(error), fix="copy the file again, or remove the episode from the dataset"
    )
