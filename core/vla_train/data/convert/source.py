"""The dataset that is converted: its metadata as it is written, and the rows of its episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vla_train.data.episode_tables import EpisodeTables
from vla_train.data.errors import DataError
from vla_train.data.files import EpisodeFiles
from vla_train.data.metadata import find_files, is_shared, json_lines, read_info, read_tasks
from vla_train.data.shared_files import EPISODES, SharedFiles, read_listing

# Columns every table of LeRobot has; those a source lacks are filled in.
STANDARD = ("timestamp", "frame_index", "episode_index", "index", "task_index")

EpisodeStats = dict[str, dict[str, Any]]


@dataclass
class Source:
    """What is converted.

    Attributes:
        folder: dataset folder.
        info: content of `meta/info.json`.
        files: where tables and videos are.
        entries: the listed episodes to convert, with all fields of theirs that do not name files.
        tasks: instruction by number.
        videos: video features that have files.
    """

    folder: Path
    info: dict[str, Any]
    files: EpisodeFiles | SharedFiles
    entries: list[dict[str, Any]]
    tasks: dict[int, str]
    videos: list[str]
    _last: tuple[Path, pa.Table] | None = field(default=None, repr=False)

    def rows(self, number: int, start: int) -> pa.Table:
        """Rows of the `number`-th episode for the new set, where it is episode `number` and begins at row `start`.

        Raises:
            DataError: damaged, or shorter than its listed length.
        """
        entry = self.entries[number]
        index, length = int(entry["episode_index"]), int(entry["length"])
        path = self.files.table(index)
        table = self._read(path)
        if self.files.shared:
            table = table.filter(pc.equal(table["episode_index"], index))
        if table.num_rows < length:
            raise DataError(
                f"{path} has {table.num_rows} rows of episode {index}",
                why=f"{self.files.listing} says {length}",
                fix="`vla data check` tells what is wrong with the set",
            )
        table = table.slice(0, length).replace_schema_metadata(None)
        steps = np.arange(length)
        fps = float(self.info.get("fps") or 1)
        given = {
            "timestamp": pa.array((steps / fps).astype(np.float32)),
            "frame_index": pa.array(steps),
            "task_index": pa.array(np.full(length, self._task(entry))),
            "episode_index": pa.array(np.full(length, number)),
            "index": pa.array(steps + start),
        }
        for name in STANDARD:
            if name not in table.column_names:
                table = table.append_column(name, given[name])
            elif name in ("episode_index", "index"):
                place = table.column_names.index(name)
                table = table.set_column(place, name, given[name].cast(table[name].type))
        return table

    def _task(self, entry: Mapping[str, Any]) -> int:
        numbers = {text: number for number, text in self.tasks.items()}
        return next((numbers[text] for text in entry.get("tasks") or () if text in numbers), 0)

    def _read(self, path: Path) -> pa.Table:
        if self._last is None or self._last[0] != path:
            try:
                self._last = (path, pq.read_table(path))
            except (OSError, pa.ArrowException) as error:
                raise DataError(f"cannot read {path}", why=str(error), fix="copy the file again") from error
        return self._last[1]


def open_source(folder: Path, *, skip_missing: bool) -> Source:
    """Read the metadata of the dataset in `folder`.

    Raises:
        DataError: not a dataset, or listed episodes lack files and `skip_missing` is false.
    """
    info = read_info(folder)
    files = find_files(folder, info)
    features = [name for name, feature in info.get("features", {}).items() if feature.get("dtype") == "video"]
    videos = [name for name in features if files.has_videos(name)]
    if is_shared(info):
        prefixes = ("data/", "videos/", "meta/", "dataset_")
        entries = [{k: v for k, v in row.items() if not k.startswith(prefixes)} for row in read_listing(folder)]
    else:
        entries = json_lines(folder / "meta" / "episodes.jsonl")
    kept = [entry for entry in entries if files.absent(int(entry["episode_index"]), videos) is None]
    if not kept or (len(kept) < len(entries) and not skip_missing):
        missing = [files.absent(int(entry["episode_index"]), videos) for entry in entries]
        raise DataError(
            f"{folder}: {len(entries) - len(kept)} of {len(entries)} listed episodes lack files",
            why=f"not found: {next(path for path in missing if path)}, ..." if entries else "none is listed",
            fix="download the rest, or convert what is there with --skip-missing",
        )
    tasks = read_tasks(folder, info)
    if not tasks:
        texts = dict.fromkeys(text for entry in kept for text in entry.get("tasks") or ())
        tasks = dict(enumerate(texts))
    return Source(folder, info, files, kept, tasks, videos)


def episode_stats(source: Source) -> list[EpisodeStats]:
    """Per converted episode and column min, max, mean, std and count; those the source lists come first."""
    listed = _listed_stats(source)
    tables = EpisodeTables(source.files)
    result = []
    for entry in source.entries:
        index = int(entry["episode_index"])
        stats = {name: values for name, values in listed.get(index, {}).items() if name not in STANDARD}
        for name, column in tables.read(index).items():
            rows = column[: int(entry["length"])]
            if name in stats or name in STANDARD or rows.dtype.kind not in "fiub":
                continue
            rows = rows.reshape(len(rows), -1).astype(np.float64)
            stats[name] = {
                "min": rows.min(axis=0).tolist(),
                "max": rows.max(axis=0).tolist(),
                "mean": rows.mean(axis=0).tolist(),
                "std": rows.std(axis=0).tolist(),
                "count": [len(rows)],
            }
        result.append(stats)
    return result


def _listed_stats(source: Source) -> dict[int, EpisodeStats]:
    path = source.folder / "meta" / "episodes_stats.jsonl"
    if not source.files.shared:
        entries = json_lines(path) if path.is_file() else []
        return {int(entry["episode_index"]): entry["stats"] for entry in entries}
    found: dict[int, EpisodeStats] = {}
    for file in sorted((source.folder / EPISODES).rglob("*.parquet")):
        names = [name for name in pq.read_schema(file).names if name.startswith("stats/")]
        for row in pq.read_table(file, columns=["episode_index", *names]).to_pylist():
            stats = found.setdefault(int(row["episode_index"]), {})
            for name in names:
                _, rest = name.split("/", 1)
                feature, key = rest.rsplit("/", 1)
                if row[name] is not None:
                    stats.setdefault(feature, {})[key] = row[name]
    return found
