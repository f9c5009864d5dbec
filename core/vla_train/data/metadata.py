"""`meta/` of a LeRobot dataset: `info.json`, the list of episodes, the tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_train.config.files import datasets_below
from vla_train.data.errors import DataError
from vla_train.data.files import EpisodeFiles
from vla_train.data.shared_files import SharedFiles, read_listing, read_task_table


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
            fix=datasets_below(folder) or "name the folder that holds meta/, data/ and videos/",
        )
    try:
        info = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not JSON", why=str(error), fix="copy the file again") from error
    version = format_version(info)
    if not version.startswith(("v2.", "v3.")):
        raise DataError(
            f"{folder} is a LeRobot {version} dataset",
            why="v2.0, v2.1 and v3.0 can be read",
            fix="convert it with LeRobot's own converters",
        )
    return info


def format_version(info: dict[str, Any]) -> str:
    """`v2.0`, `v2.1`, ...; the oldest when the file does not say."""
    return str(info.get("codebase_version") or "v2.0")


def is_shared(info: dict[str, Any]) -> bool:
    """Whether files hold several episodes (v3.0)."""
    return format_version(info).startswith("v3.")


def find_files(folder: Path, info: dict[str, Any]) -> EpisodeFiles | SharedFiles:
    """Where the tables and videos of the dataset are."""
    return SharedFiles(folder, info, read_listing(folder)) if is_shared(info) else EpisodeFiles(folder, info)


def read_episodes(folder: Path, info: dict[str, Any]) -> list[Episode]:
    """The listed episodes, in listed order.

    Raises:
        DataError: the list is missing or damaged.
    """
    if is_shared(info):
        return [
            Episode(int(row["episode_index"]), int(row["length"]), tuple(row.get("tasks") or ()))
            for row in read_listing(folder)
        ]
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
    listed = read_task_table(folder) if is_shared(info) else None
    if listed is not None:
        return listed
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
