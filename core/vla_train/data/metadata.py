"""`meta/` of a LeRobot dataset: `info.json`, the list of episodes, the tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_train.data.errors import DataError
from vla_train.data.files import EpisodeFiles


@dataclass(frozen=True)
class Episode:
    """One demonstration.

    Attributes:
        index: `episode_index`.
        length: number of steps.
        tasks: instructions listed for it.
    """

    index: int
    length: int
    tasks: tuple[str, ...] = ()


def read_info(folder: Path) -> dict[str, Any]:
    """`meta/info.json`.

    Raises:
        DataError: not a LeRobot dataset, or one of a version that cannot be read.
    """
    path = folder / "meta" / "info.json"
    if not path.is_file():
        raise DataError(
            f"{folder} is not a LeRobot dataset",
            why=f"{path} does not exist" if folder.exists() else "the folder does not exist",
            fix="check data.root and the dataset's path; the folder must hold meta/, data/ and videos/",
        )
    try:
        info = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not JSON", why=str(error), fix="copy the file again") from error
    version = format_version(info)
    if not version.startswith("v2"):
        raise DataError(
            f"{folder} is a LeRobot {version} dataset",
            why="this reader understands v2.0 and v2.1 (one table and one video per episode)",
            fix="convert it to v2.1 with LeRobot's own converter",
        )
    return info


def format_version(info: dict[str, Any]) -> str:
    """`v2.0`, `v2.1`, ...; the oldest when the file does not say."""
    return str(info.get("codebase_version") or "v2.0")


def find_files(folder: Path, info: dict[str, Any]) -> EpisodeFiles:
    """Where the tables and videos of the dataset are."""
    return EpisodeFiles(folder, info)


def read_episodes(folder: Path, info: dict[str, Any]) -> list[Episode]:
    """The listed episodes, in listed order.

    Raises:
        DataError: the list is missing or damaged.
    """
    path = folder / "meta" / "episodes.jsonl"
    try:
        return [
            Episode(int(entry["episode_index"]), int(entry["length"]), tuple(entry.get("tasks") or ()))
            for entry in json_lines(path)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: an entry lacks {error}", fix="every line needs episode_index and length, whole numbers"
        ) from error


def read_tasks(folder: Path, info: dict[str, Any]) -> dict[int, str]:
    """Instruction by `task_index`; empty when the dataset lists none.

    Raises:
        DataError: the list is damaged.
    """
    path = folder / "meta" / "tasks.jsonl"
    if not path.is_file():
        return {}
    try:
        return {int(entry["task_index"]): str(entry["task"]) for entry in json_lines(path)}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: an entry lacks {error}", fix="every line needs task_index and task") from error


def json_lines(path: Path) -> list[dict[str, Any]]:
    """One JSON object per line; a `DataError` when the file cannot be read."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}", why=str(error), fix="one JSON object per line is expected") from error
