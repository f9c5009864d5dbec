"""Reading columns of an episode's Parquet table into arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vla_train.data.errors import DataError


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


def read_columns(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Columns of one episode.

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
        raise DataError(
            f"cannot read {path}", why=str(error), fix="copy the file again, or remove the episode from the dataset"
        ) from error
    arrays: dict[str, np.ndarray] = {}
    for name in wanted:
        try:
            arrays[name] = column_array(table[name])
        except (ValueError, TypeError, pa.ArrowException) as error:
            if names is None:
                continue
            raise DataError(
                f"column {name!r} of {path} is not a table of numbers",
                why=str(error),
                fix="store one vector of equal length per row",
            ) from error
    return arrays
