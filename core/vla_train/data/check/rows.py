"""Checks of the tables: rows, widths, numbers, timestamps, tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vla_train.data.check.contents import Contents
from vla_train.data.check.findings import ERROR, NOTE, WARNING
from vla_train.data.episode_tables import EpisodeTables
from vla_train.data.errors import DataError
from vla_train.data.metadata import Episode
from vla_train.data.tables import Columns

TOLERANCE = 0.05  # two rates that differ by less are the same


@dataclass
class Clock:
    """The timestamps of one episode: rows, the last one, and the usual distance between two, in seconds."""

    rows: int
    last: float
    step: float


@dataclass
class Tables:
    """What the tables say, for the checks of the videos."""

    clocks: dict[int, Clock] = field(default_factory=dict)
    _low: dict[str, np.ndarray] = field(default_factory=dict)
    _high: dict[str, np.ndarray] = field(default_factory=dict)

    def widen(self, column: str, rows: np.ndarray) -> None:
        """Keep the smallest and largest value of every dimension."""
        if not len(rows):
            return
        low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
        if column not in self._low or len(self._low[column]) != len(low):
            self._low[column], self._high[column] = low, high
        else:
            self._low[column] = np.fmin(self._low[column], low)
            self._high[column] = np.fmax(self._high[column], high)

    def constant(self, column: str) -> list[int]:
        """Dimensions that have one value in all rows."""
        if column not in self._low:
            return []
        return [int(i) for i in np.flatnonzero(self._low[column] == self._high[column])]

    def bounds(self, column: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Smallest and largest value of every dimension."""
        return (self._low[column], self._high[column]) if column in self._low else None


def check_tables(contents: Contents) -> Tables:
    """Read every table once."""
    tables, source = Tables(), EpisodeTables(contents.files)
    damaged: set[str] = set()
    for episode in contents.present:
        try:
            columns = source.read(episode.index)
        except DataError as error:
            if error.what not in damaged:
                damaged.add(error.what)
                file = contents.files.table(episode.index)
                contents.add(ERROR, "damaged-table", file, pointer(file) or error.why, error.fix)
            continue
        _check_episode(contents, episode, columns, tables)
    if contents.present:
        _check_schema(contents, contents.files.table(contents.present[0].index))
    _constant(contents, tables)
    return tables


def _check_schema(contents: Contents, file: Path) -> None:
    """How the columns are stored, by the example of the first table."""
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException):
        return  # damaged, which has been said
    for name in sorted(contents.columns() & set(schema.names)):
        if pa.types.is_string(schema.field(name).type) or pa.types.is_large_string(schema.field(name).type):
            contents.add(
                NOTE, "json-text", file, f"column {name!r} holds vectors as JSON text, which is slower to read"
            )
    if "task_index" not in schema.names:
        contents.add(NOTE, "no-task-index", file, "no column 'task_index'; the first task of the episode is taken")


def pointer(path: Path) -> str:
    """Said of a file that only names where its content is kept (Git LFS); empty for any other."""
    with open(str(path), "rb") as handle:
        start = handle.read(48)
    return (
        "is a Git LFS pointer, not the file itself: git lfs pull"
        if start.startswith(b"version https://git-lfs")
        else ""
    )


def _check_episode(contents: Contents, episode: Episode, columns: Columns, tables: Tables) -> None:
    file = contents.files.table(episode.index)
    rows = min((len(values) for values in columns.values()), default=0)
    if rows != episode.length:
        contents.add(
            ERROR if rows < episode.length else WARNING,
            "rows",
            file,
            f"{rows} rows; {contents.files.listing} says that episode {episode.index} has {episode.length} steps",
            "copy the file again, or correct the length" if rows < episode.length else "the rows beyond are not used",
        )
    if not rows:
        return
    used = contents.columns()
    for name in used - columns.keys():
        contents.add(
            ERROR, "no-column", file, f"has no readable column {name!r}", "correct meta/modality.json or the file"
        )
    for name, values in columns.items():
        if values.dtype.kind == "f" or name in used:
            _check_numbers(contents, file, name, values, name in used, tables)
    _check_widths(contents, file, columns)
    _check_tasks(contents, file, columns)
    _check_index(contents, file, episode, columns)
    clock = _check_clock(contents, file, columns, rows)
    if clock:
        tables.clocks[episode.index] = clock


def _check_numbers(contents: Contents, file: Path, name: str, values: np.ndarray, used: bool, tables: Tables) -> None:
    if values.dtype.kind not in "fiub":
        if used:
            contents.add(
                ERROR, "not-numbers", file, f"column {name!r} holds {values.dtype}", "store vectors of numbers"
            )
        return
    flat = values.reshape(len(values), -1)
    bad = np.flatnonzero(~np.isfinite(flat).all(axis=1)) if flat.dtype.kind == "f" else np.empty(0)
    if len(bad):
        contents.add(
            ERROR if used else WARNING,
            "not-finite" if used else "not-finite-unused",
            file,
            f"column {name!r} is NaN or infinite in {len(bad)} of {len(flat)} rows, first in row {bad[0]}",
            "repair the recording, or remove the episode" if used else "nothing to do unless a robot of yours uses it",
        )
    if used:
        with np.errstate(all="ignore"):
            tables.widen(name, np.where(np.isfinite(flat), flat, np.nan) if len(bad) else flat)


def _check_widths(contents: Contents, file: Path, columns: Columns) -> None:
    for group, name, part in contents.parts():
        values = columns.get(part.column)
        width = 0 if values is None else (values.shape[1] if values.ndim > 1 else 1)
        if values is not None and width < part.end:
            contents.add(
                ERROR,
                "width",
                file,
                f"column {part.column!r} has {width} values, {group}.{name} is [{part.start}:{part.end}] of it",
                "correct meta/modality.json, or remove the episode if it belongs to another robot",
            )


def _check_tasks(contents: Contents, file: Path, columns: Columns) -> None:
    language = contents.modality.language
    for column in dict.fromkeys([*language.values(), "task_index"]):
        values = columns.get(column)
        if values is None or values.dtype.kind not in "iu" or not contents.tasks:
            continue
        unknown = sorted(set(values.reshape(-1).tolist()) - contents.tasks.keys())
        if unknown:
            contents.add(
                ERROR,
                "unknown-task",
                file,
                f"column {column!r} names task {unknown[0]}, which the list of tasks does not have",
                "add it to the tasks under meta/",
            )


def _check_index(contents: Contents, file: Path, episode: Episode, columns: Columns) -> None:
    if "episode_index" in columns and (columns["episode_index"].reshape(-1) != episode.index).any():
        contents.add(
            WARNING,
            "episode-index",
            file,
            f"column 'episode_index' names episode {columns['episode_index'].reshape(-1)[0]}",
            "the file's name counts; renumber the column",
        )


def _check_clock(contents: Contents, file: Path, columns: Columns, rows: int) -> Clock | None:
    fps = float(contents.info.get("fps") or 0)
    if "timestamp" not in columns:
        contents.add(NOTE, "no-timestamp", file, f"no column 'timestamp'; {fps:g} steps per second are assumed")
        return Clock(rows, (rows - 1) / fps, 1 / fps) if fps > 0 else None
    times = np.asarray(columns["timestamp"], dtype=np.float64).reshape(-1)
    if not np.isfinite(times).all():
        contents.add(ERROR, "timestamps", file, "column 'timestamp' is not finite", "rewrite it as step / fps")
        return None
    steps = np.diff(times)
    if len(steps) and steps.min() <= 0:
        row = int(steps.argmin()) + 1
        contents.add(
            ERROR,
            "timestamps",
            file,
            f"timestamps do not ascend: {times[row - 1]:g} s, then {times[row]:g} s in row {row}",
            "rewrite the column as step / fps",
        )
        return None
    step = float(np.median(steps)) if len(steps) else 1 / fps if fps else 0.0
    if fps > 0 and step and abs(step * fps - 1) > TOLERANCE:
        contents.add(
            WARNING,
            "fps",
            file,
            f"timestamps are {step:.4g} s apart ({1 / step:.4g} per second), fps in meta/info.json is {fps:g}",
            "the timestamps count; correct fps in meta/info.json",
        )
    return Clock(rows, float(times[-1]), step)


def _constant(contents: Contents, tables: Tables) -> None:
    for group, name, part in contents.parts():
        dims = [i - part.start for i in tables.constant(part.column) if part.start <= i < part.end]
        if dims:
            which = "all of it" if len(dims) == part.width else f"dimensions {', '.join(map(str, dims))}"
            contents.add(
                WARNING,
                "constant",
                "data",
                f"{group}.{name}: {which} never changes, in no episode",
                "nothing can be learnt from it: leave the part out of the robot's keys if it is meant to move",
            )
