"""Writing LeRobot v3.0; for the layout see `vla_train.data.shared_files`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vla_train.data.convert.common import new_info, part
from vla_train.data.convert.output import PARTS, Output
from vla_train.data.convert.source import EpisodeStats, Source, episode_stats
from vla_train.data.convert.streams import Encoding, concatenate, parameters
from vla_train.data.errors import DataError
from vla_train.data.shared_files import EPISODES, TABLE, TASKS, VIDEO
from vla_train.data.statistics import column_statistics

CHUNK: Final = 1000  # files per folder
TABLE_MB, VIDEO_MB = 100, 200  # LeRobot's own limits

Progress = Callable[[int], Callable[[], None]]
Row = dict[str, Any]


def write(source: Source, output: Output, encoding: Encoding | None, progress: Progress) -> Row:
    """Write everything but `meta/info.json`, which is returned."""
    step = progress(len(source.entries) * (1 + len(source.videos)))
    rows: list[Row] = [{**entry, "episode_index": number} for number, entry in enumerate(source.entries)]
    _write_tables(source, output, rows, step)
    for feature in source.videos:
        _write_videos(source, output, feature, encoding, rows, step)
    stats = episode_stats(source)
    _write_listing(output, rows, stats)
    _write_tasks(source, output)
    paths = sorted((output.folder / "data").rglob("*.parquet"))
    output.json("meta/stats.json", _dataset_stats(paths, stats, len(rows)))
    info = new_info(source, "v3.0", encoding)
    info |= {"chunks_size": CHUNK, "data_files_size_in_mb": TABLE_MB, "video_files_size_in_mb": VIDEO_MB}
    info |= {"data_path": TABLE, "video_path": VIDEO if source.videos else None}
    for feature in info["features"].values():
        if feature.get("dtype") != "video":
            feature["fps"] = info.get("fps")
    return info


def _write_tables(source: Source, output: Output, rows: list[Row], step: Callable[[], None]) -> None:
    start = 0
    sizes = [_table_size(source, row) for row in source.entries]
    for file, group in enumerate(_groups(sizes, TABLE_MB * 2**20)):
        starts = {}
        for number in group:
            length = int(rows[number]["length"])
            rows[number] |= {"data/chunk_index": file // CHUNK, "data/file_index": file % CHUNK}
            rows[number] |= {"dataset_from_index": start, "dataset_to_index": start + length}
            starts[number] = start
            start += length
        name = TABLE.format(chunk_index=file // CHUNK, file_index=file % CHUNK)
        output.write(name, partial(_write_table, source, starts))
        for _ in group:
            step()


def _write_table(source: Source, starts: dict[int, int], path: Path) -> None:
    """One row group per episode, so that one can be read without the others."""
    writer = None
    try:
        for number, start in starts.items():
            table = source.rows(number, start)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema)
            try:
                writer.write_table(
                    table.select(writer.schema.names).cast(writer.schema), row_group_size=max(table.num_rows, 1)
                )
            except (pa.ArrowException, KeyError) as error:
                raise DataError(
                    f"the table of episode {source.entries[number]['episode_index']} does not fit those before it",
                    why=str(error),
                    fix="episodes of one dataset need the same columns; remove those that differ",
                ) from error
    finally:
        if writer is not None:
            writer.close()


def _write_videos(
    source: Source, output: Output, feature: str, encoding: Encoding | None, rows: list[Row], step: Callable[[], None]
) -> None:
    parts = []
    for number in range(len(rows)):
        parts.append(part(source, output, number, feature, encoding))
        step()
    sizes = [path.stat().st_size for path in parts]
    kinds = [parameters(path) for path in parts]
    for file, group in enumerate(_groups(sizes, VIDEO_MB * 2**20, kinds)):
        place = {"chunk_index": file // CHUNK, "file_index": file % CHUNK}
        spans = f"{PARTS}/{feature}/file-{file}.json"

        def join(path: Path, group: list[int] = group, spans: str = spans) -> None:
            output.json(spans, concatenate([parts[number] for number in group], path))

        output.write(VIDEO.format(video_key=feature, **place), join)
        found = json.loads((output.folder / spans).read_text())
        for number, (start, end) in zip(group, found, strict=True):
            rows[number] |= {f"videos/{feature}/{key}": value for key, value in place.items()}
            rows[number] |= {f"videos/{feature}/from_timestamp": start, f"videos/{feature}/to_timestamp": end}


def _groups(sizes: Sequence[int], limit: int, kinds: Sequence[object] | None = None) -> Iterator[list[int]]:
    """Consecutive numbers that share a file: of one kind, and together below the limit."""
    group: list[int] = []
    total = 0
    for number, size in enumerate(sizes):
        other = kinds is not None and group and kinds[number] != kinds[group[0]]
        if group and (other or total + size > limit):
            yield group
            group, total = [], 0
        group.append(number)
        total += size
    if group:
        yield group


def _table_size(source: Source, entry: Row) -> int:
    metadata = pq.read_metadata(source.files.table(int(entry["episode_index"])))
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return int(size * int(entry["length"]) / max(metadata.num_rows, 1))


def _write_listing(output: Output, rows: list[Row], stats: list[EpisodeStats]) -> None:
    for row, values in zip(rows, stats, strict=True):
        flat = {f"stats/{name}/{key}": value for name, found in values.items() for key, value in found.items()}
        row |= {**flat, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
    path = f"{EPISODES}/chunk-000/file-000.parquet"
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    (output.folder / path).unlink(missing_ok=True)
    output.write(path, lambda temporary: pq.write_table(table, temporary))


def _write_tasks(source: Source, output: Output) -> None:
    numbers = sorted(source.tasks)
    table = pa.table({"task_index": numbers, "task": [source.tasks[number] for number in numbers]})
    # pandas takes the column named here as the index, which is where LeRobot looks for the text.
    columns = [_pandas_column("task_index", "int64", "int64"), _pandas_column("task", "unicode", "object")]
    index = _pandas_column(None, "unicode", "object")
    pandas = {"index_columns": ["task"], "column_indexes": [index], "columns": columns, "pandas_version": "2.0.0"}
    table = table.replace_schema_metadata({"pandas": json.dumps(pandas)})
    output.write(TASKS, lambda temporary: pq.write_table(table, temporary))


def _pandas_column(name: str | None, kind: str, numpy_type: str) -> dict[str, Any]:
    return {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy_type, "metadata": None}


def _dataset_stats(paths: Sequence[Path], episodes: list[EpisodeStats], count: int) -> dict[str, Any]:
    """`meta/stats.json`: exact for the columns of tables, pooled from those of the episodes for videos."""
    frames = int(sum(pq.read_metadata(path).num_rows for path in paths))
    result: dict[str, Any] = {name: {**s, "count": [frames]} for name, s in column_statistics(paths).items()}
    for name in dict.fromkeys(name for stats in episodes for name in stats):
        if name not in result and all(name in stats for stats in episodes):
            result[name] = _pool([stats[name] for stats in episodes])
    return result


def _pool(parts: list[dict[str, Any]]) -> dict[str, Any]:
    arrays = {key: [np.asarray(part[key], np.float64) for part in parts] for key in ("min", "max", "mean", "std")}
    weights = np.asarray([float(np.asarray(part.get("count", 1)).reshape(-1)[0]) for part in parts])
    weights = weights / weights.sum()
    mean = sum(w * m for w, m in zip(weights, arrays["mean"], strict=True))
    square = sum(w * (s**2 + m**2) for w, s, m in zip(weights, arrays["std"], arrays["mean"], strict=True))
    return {
        "min": np.min(arrays["min"], axis=0).tolist(),
        "max": np.max(arrays["max"], axis=0).tolist(),
        "mean": np.asarray(mean).tolist(),
        "std": np.sqrt(np.maximum(square - np.asarray(mean) ** 2, 0)).tolist(),
        "count": [int(sum(np.asarray(part.get("count", 1)).reshape(-1)[0] for part in parts))],
    }
