"""One LeRobot dataset on disk: metadata, episodes, tables, instructions, video paths."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vla_train.data.episode_tables import EpisodeTables
from vla_train.data.errors import DataError
from vla_train.data.metadata import Episode, find_files, read_episodes, read_info, read_tasks
from vla_train.data.modality import Modality, read_modality

__all__ = ["Episode", "LeRobotDataset"]

log = logging.getLogger(__name__)


class LeRobotDataset:
    """Reads one dataset folder; nothing is ever written into it. Picklable: caches stay in their process.

    Args:
        folder: dataset folder (the one holding `meta/`).
        skip_missing: leave out episodes without files instead of raising.

    Raises:
        DataError: not a LeRobot dataset of a known version, or (later) files that are missing.
    """

    def __init__(self, folder: Path | str, *, skip_missing: bool = False) -> None:
        self.folder = Path(folder)
        self.name = self.folder.name
        self.skip_missing = skip_missing
        self.info = read_info(self.folder)
        self.files = find_files(self.folder, self.info)
        self.modality: Modality = read_modality(self.folder, self.info)
        self.listed = read_episodes(self.folder, self.info)
        self.tasks = read_tasks(self.folder, self.info)
        self._tables = EpisodeTables(self.files)

    def use_columns(self, names: Iterable[str]) -> None:
        """Read only these columns from now on (`timestamp` is added)."""
        self._tables = EpisodeTables(self.files, [*names, "timestamp"])

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
        columns = self._tables.read(episode.index)
        rows = min((len(values) for values in columns.values()), default=0)
        if rows < episode.length:
            raise DataError(
                f"{self.files.table(episode.index)} has {rows} rows",
                why=f"{self.files.listing} says that episode {episode.index} has {episode.length} steps",
                fix="copy the file again, or correct the length",
            )
        return {name: values[: episode.length] for name, values in columns.items()}

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
                why=f"column {column!r} of episode {episode.index} names it; the tasks under meta/ do not",
                fix="add the task to the list",
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
