"""One LeRobot dataset (v2.0 and v2.1) on disk: metadata, episodes, tables, instructions, video paths."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_train.data.errors import DataError
from vla_train.data.files import EpisodeFiles
from vla_train.data.modality import Modality, read_modality
from vla_train.data.tables import read_columns

log = logging.getLogger(__name__)

_TABLES_KEPT = 512  # episodes per process; some 50 KB each


@dataclass(frozen=True)
class Episode:
    """One demonstration.

    Attributes:
        index: `episode_index`.
        length: number of steps.
        tasks: instructions listed for it in `meta/episodes.jsonl`.
    """

    index: int
    length: int
    tasks: tuple[str, ...] = ()


class LeRobotDataset:
    """Reads one dataset folder; nothing is ever written into it. Picklable: caches stay in their process.

    Args:
        folder: dataset folder (the one holding `meta/`).
        skip_missing: leave out episodes without files instead of raising.

    Raises:
        DataError: not a LeRobot v2 dataset, or (later) files that are missing.
    """

    def __init__(self, folder: Path | str, *, skip_missing: bool = False) -> None:
        self.folder = Path(folder)
        self.name = self.folder.name
        self.skip_missing = skip_missing
        self.info = _read_info(self.folder)
        self.files = EpisodeFiles(self.folder, self.info)
        self.modality: Modality = read_modality(self.folder, self.info)
        self.listed = _read_episodes(self.folder)
        self.tasks = _read_tasks(self.folder)
        self._columns: tuple[str, ...] | None = None
        self._tables: OrderedDict[int, dict[str, np.ndarray]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": OrderedDict()}

    def use_columns(self, names: Iterable[str]) -> None:
        """Read only these columns from now on (`timestamp` is added)."""
        self._columns = tuple(dict.fromkeys([*names, "timestamp"]))
        self._tables.clear()

    def cameras_on_disk(self) -> list[str]:
        """Camera names that have at least one video file; `info.json` sometimes lists others."""
        return [name for name, feature in self.modality.video.items() if self.files.has_videos(feature)]

    def usable_episodes(self, cameras: Iterable[str], language: str | None) -> list[Episode]:
        """Listed episodes with a table, all videos of `cameras` and a non-empty instruction, in listed order.

        Raises:
            DataError: files are missing and `skip_missing` is false, or nothing is left.
        """
        features = [self.modality.video[name] for name in cameras]
        missing: list[str] = []
        kept: list[Episode] = []
        for episode in self.listed:
            absent = self.files.absent(episode.index, features)
            if absent:
                missing.append(absent)
            elif self._has_instruction(episode, language):
                kept.append(episode)
            else:
                log.warning("%s: episode %d left out: its instruction is empty", self.name, episode.index)
        if missing and not self.skip_missing:
            raise DataError(
                f"{self.folder}: {len(missing)} of {len(self.listed)} listed episodes lack files",
                why=f"not found: {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
                fix="download the rest, or set data.skip_missing_episodes=true to train on what is there",
            )
        if missing:
            log.warning("%s: %d of %d listed episodes skipped: no files", self.name, len(missing), len(self.listed))
        if not kept:
            raise DataError(
                f"{self.folder} has no usable episode",
                why=f"{len(self.listed)} listed, {len(missing)} without files",
                fix="check that the folder was downloaded with its data/ and videos/ folders",
            )
        return kept

    def table(self, episode: Episode) -> dict[str, np.ndarray]:
        """The episode's columns, each with `episode.length` rows; kept in memory for later calls.

        Raises:
            DataError: the file is missing, damaged or shorter than the episode.
        """
        if episode.index in self._tables:
            self._tables.move_to_end(episode.index)
            return self._tables[episode.index]
        path = self.files.table(episode.index)
        columns = read_columns(path, self._columns)
        rows = min((len(values) for values in columns.values()), default=0)
        if rows < episode.length:
            raise DataError(
                f"{path} has {rows} rows",
                why=f"meta/episodes.jsonl says that episode {episode.index} has {episode.length} steps",
                fix="copy the file again, or correct the length",
            )
        columns = {name: values[: episode.length] for name, values in columns.items()}
        self._tables[episode.index] = columns
        while len(self._tables) > _TABLES_KEPT:
            self._tables.popitem(last=False)
        return columns

    def instruction(self, episode: Episode, step: int, language: str | None) -> str:
        """The instruction at `step`.

        Args:
            episode: which demonstration.
            step: table row; clamped to the episode.
            language: annotation name of `modality.json`, or `None` for the task of the episode.
        """
        column = self.modality.language.get(language or "", "task_index")
        table = self.table(episode)
        if column not in table:
            return episode.tasks[0] if episode.tasks else ""
        value = table[column][min(max(step, 0), episode.length - 1)]
        if isinstance(value, str):
            return value
        number = int(np.asarray(value).reshape(-1)[0])
        if self.tasks and number not in self.tasks:
            raise DataError(
                f"{self.folder}: no task {number}",
                why=f"column {column!r} of episode {episode.index} names it; meta/tasks.jsonl does not",
                fix="add the task to meta/tasks.jsonl",
            )
        return self.tasks.get(number, episode.tasks[0] if episode.tasks else "")

    def timestamps(self, episode: Episode) -> np.ndarray:
        """Seconds of every step in its videos, (T,) float64; step / fps when the table has no timestamp column."""
        table = self.table(episode)
        if "timestamp" in table:
            return np.asarray(table["timestamp"], dtype=np.float64).reshape(-1)
        return np.arange(episode.length) / float(self.info.get("fps") or 1.0)

    def _has_instruction(self, episode: Episode, language: str | None) -> bool:
        # Opening every table takes minutes on a large set; without an empty text nothing can be empty.
        if self.tasks and all(text.strip() for text in self.tasks.values()):
            return True
        return bool(self.instruction(episode, 0, language).strip())


def _read_info(folder: Path) -> dict[str, Any]:
    path = folder / "meta" / "info.json"
    if not path.is_file():
        raise DataError(
            f"{folder} is not a LeRobot dataset",
            why=f"{path} does not exist" if folder.exists() else "the folder does not exist",
            fix="check data.root and the dataset's path; the folder must hold meta/, data/ and videos/",
        )
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON", why=str(error), fix="copy the file again") from error
    version = str(info.get("codebase_version", "v2.0"))
    if not version.startswith("v2"):
        raise DataError(
            f"{folder} is a LeRobot {version} dataset",
            why="this reader understands v2.0 and v2.1 (one table and one video per episode)",
            fix="convert it to v2.1 with LeRobot's own converter",
        )
    return dict(info)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}", why=str(error), fix="one JSON object per line is expected") from error


def _read_episodes(folder: Path) -> list[Episode]:
    path = folder / "meta" / "episodes.jsonl"
    try:
        return [
            Episode(int(entry["episode_index"]), int(entry["length"]), tuple(entry.get("tasks") or ()))
            for entry in _json_lines(path)
        ]
    except KeyError as error:
        raise DataError(f"{path}: an entry lacks {error}", fix="every line needs episode_index and length") from error


def _read_tasks(folder: Path) -> dict[int, str]:
    path = folder / "meta" / "tasks.jsonl"
    if not path.is_file():
        return {}
    return {int(entry["task_index"]): str(entry["task"]) for entry in _json_lines(path)}
