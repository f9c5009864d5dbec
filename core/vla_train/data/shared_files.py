"""LeRobot v3.0: several episodes per table and video; `meta/episodes/` says where each one is.

Layout, after https://github.com/huggingface/lerobot `docs/source/lerobot-dataset-v3.mdx`:

    meta/info.json  meta/stats.json  meta/tasks.parquet  meta/episodes/chunk-000/file-000.parquet
    data/chunk-000/file-000.parquet  videos/<feature>/chunk-000/file-000.mp4

A row of `meta/episodes/` has `episode_index`, `tasks`, `length`, `data/chunk_index`, `data/file_index` and for every
camera `videos/<feature>/{chunk_index, file_index, from_timestamp, to_timestamp}`; times are seconds in the video file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vla_train.data.errors import DataError
from vla_train.data.files import Clip, walk

TABLE = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES = "meta/episodes"
TASKS = "meta/tasks.parquet"


def read_listing(folder: Path) -> list[dict[str, Any]]:
    """The rows of `meta/episodes/` by `episode_index`, without the statistics.

    Raises:
        DataError: missing or damaged.
    """
    paths = sorted((folder / EPISODES).rglob("*.parquet"))
    if not paths:
        raise DataError(
            f"{folder / EPISODES} holds no parquet file",
            why="in LeRobot v3.0 it says where each episode is",
            fix="download meta/ again, or correct codebase_version in meta/info.json",
        )
    rows: list[dict[str, Any]] = []
    for path in paths:
        try:
            names = [name for name in pq.read_schema(path).names if not name.startswith("stats/")]
            found = pq.read_table(path, columns=names).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot read {path}", why=str(error), fix="copy the file again") from error
        lacking = {"episode_index", "length", "data/chunk_index", "data/file_index"} - set(names)
        if lacking:
            raise DataError(
                f"{path} lacks the column {min(lacking)!r}",
                why=f"columns: {', '.join(names)}",
                fix="download meta/episodes/ again",
            )
        rows += found
    return sorted(rows, key=lambda row: int(row["episode_index"]))


def read_task_table(folder: Path) -> dict[int, str] | None:
    """Instruction by `task_index` from `meta/tasks.parquet`; `None` when there is no such file.

    The text is the table's index, whose name depends on what wrote it.
    """
    path = folder / TASKS
    if not path.is_file():
        return None
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}", why=str(error), fix="copy the file again") from error
    texts = [name for name in table.column_names if _is_text(table[name].type)]
    if "task_index" not in table.column_names or not texts:
        raise DataError(
            f"{path} lists no tasks",
            why=f"columns: {', '.join(table.column_names)}",
            fix="it needs task_index and task",
        )
    text = "task" if "task" in texts else texts[0]
    return {int(i): str(t) for i, t in zip(table["task_index"].to_pylist(), table[text].to_pylist(), strict=True)}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))  # pandas 3 writes large ones


class SharedFiles:
    """Paths of tables and places in videos of one dataset folder; the counterpart of `EpisodeFiles`.

    Args:
        folder: dataset folder.
        info: content of `meta/info.json`.
        rows: of `read_listing`.
    """

    listing = EPISODES
    shared = True

    def __init__(self, folder: Path, info: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        self.folder = folder
        self._table_template = str(info.get("data_path") or TABLE)
        self._video_template = str(info.get("video_path") or VIDEO)
        self._known = {path for path, _, _ in walk(folder, ("data",), ".parquet")}
        self._known |= {path for path, _, _ in walk(folder, ("videos",), ".mp4")}
        features = {name.split("/", 1)[1].rsplit("/", 1)[0] for name in (rows[0] if rows else {}) if "videos/" in name}
        self._tables = {int(row["episode_index"]): self._table_path(row) for row in rows}
        self._clips: dict[str, dict[int, tuple[str, float, float]]] = {
            feature: {int(row["episode_index"]): self._clip(row, feature) for row in rows} for feature in features
        }

    def has_videos(self, feature: str) -> bool:
        """Whether any video of this feature exists."""
        return any(path in self._known for path, _, _ in self._clips.get(feature, {}).values())

    def episodes_on_disk(self) -> set[int]:
        """Listed episodes that have a table."""
        return {index for index, path in self._tables.items() if path in self._known}

    def oddities(self) -> list[str]:
        """In what the folder is not laid out as `info.json` says."""
        return []

    def table_paths(self) -> list[Path]:
        """All tables on disk, sorted."""
        return sorted(self.folder / path for path in self._known if path.endswith(".parquet"))

    def table(self, index: int) -> Path:
        """Path of the table that holds episode `index`; a missing file is a `DataError`."""
        return self._require(self._tables[index])

    def video(self, index: int, feature: str) -> Clip:
        """Where the video of `feature` of episode `index` is; a missing file is a `DataError`."""
        path, start, end = self._clips[feature][index]
        return Clip(self._require(path), start, end)

    def absent(self, index: int, features: Iterable[str]) -> str | None:
        """The first file the episode lacks, or `None`."""
        wanted = [self._tables[index], *(self._clips[feature][index][0] for feature in features)]
        return next((path for path in wanted if path not in self._known), None)

    def _table_path(self, row: Mapping[str, Any]) -> str:
        place = {"chunk_index": row["data/chunk_index"], "file_index": row["data/file_index"]}
        return self._format(self._table_template, **place)

    def _clip(self, row: Mapping[str, Any], feature: str) -> tuple[str, float, float]:
        prefix = f"videos/{feature}"
        chunk, file = row.get(f"{prefix}/chunk_index"), row.get(f"{prefix}/file_index")
        if chunk is None or file is None:
            return f"videos/{feature} (episode {row['episode_index']})", 0.0, 0.0
        path = self._format(self._video_template, video_key=feature, chunk_index=chunk, file_index=file)
        return path, float(row[f"{prefix}/from_timestamp"]), float(row[f"{prefix}/to_timestamp"])

    def _format(self, template: str, **fields: Any) -> str:
        try:
            return template.format(**fields)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise DataError(
                f"{self.folder}/meta/info.json: path template {template!r} cannot be filled in",
                why=f"{type(error).__name__}: {error}",
                fix="use {chunk_index}, {file_index} and {video_key}",
            ) from error

    def _require(self, path: str) -> Path:
        if path not in self._known:
            raise DataError(
                f"{self.folder / path} does not exist",
                why=f"{self.listing} names it",
                fix="download the file, or set data.skip_missing_episodes=true to go on without its episodes",
            )
        return self.folder / path
