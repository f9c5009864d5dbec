"""`meta/modality.json`: which slices of which columns form the named parts of state, action, video and language."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_train.data.errors import DataError


@dataclass(frozen=True)
class VectorPart:
    """Columns `start:end` of a vector-valued table column.

    Attributes:
        column: name of the table column.
        start: first element.
        end: one past the last element.
        absolute: true for positions, false for differences; decides the padding at the ends of an episode.
        rotation_type: representation when the part is a rotation (`quaternion`, `euler_angles_rpy`, ...).
    """

    column: str
    start: int
    end: int
    absolute: bool = True
    rotation_type: str | None = None

    @property
    def width(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Modality:
    """The named parts of a dataset, in file order.

    Attributes:
        state: state parts by name.
        action: action parts by name.
        video: video feature (folder name under `videos/`) by camera name.
        language: table column holding a task index (or the text itself) by annotation name.
    """

    state: dict[str, VectorPart] = field(default_factory=dict)
    action: dict[str, VectorPart] = field(default_factory=dict)
    video: dict[str, str] = field(default_factory=dict)
    language: dict[str, str] = field(default_factory=dict)

    def part(self, group: str, name: str, where: Path) -> VectorPart:
        """The part `name` of "state" or "action"; an unknown name is a `DataError` listing those that exist."""
        parts: dict[str, VectorPart] = getattr(self, group)
        if name not in parts:
            raise DataError(
                f"the dataset has no {group} part {name!r}",
                why=f"{where} defines: {', '.join(parts) or 'none'}",
                fix="choose another robot for this dataset, or correct its key lists (or meta/modality.json)",
            )
        return parts[name]


def read_modality(folder: Path, info: Mapping[str, Any]) -> Modality:
    """The parts of the dataset in `folder`, from `meta/modality.json` or, when absent, derived from `info.json`.

    Args:
        folder: dataset folder.
        info: content of `meta/info.json`.

    Raises:
        DataError: the file is not what the format says.
    """
    path = folder / "meta" / "modality.json"
    if not path.is_file():
        return default_modality(info)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return _parse(raw, info.get("features", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read",
            why=f"{type(error).__name__}: {error}",
            fix='write e.g. {"state": {"arm": {"start": 0, "end": 7}}, "action": {...}, "video": {"front": '
            '{"original_key": "observation.images.front"}}, "annotation": {...}}',
        ) from error


def _parse(raw: Mapping[str, Any], features: Mapping[str, Any]) -> Modality:
    def vectors(group: str, column: str) -> dict[str, VectorPart]:
        return {
            name: VectorPart(
                column=entry.get("original_key") or column,
                start=int(entry["start"]),
                end=int(entry["end"]),
                absolute=bool(entry.get("absolute", True)),
                rotation_type=entry.get("rotation_type"),
            )
            for name, entry in (raw.get(group) or {}).items()
        }

    def video_feature(name: str, entry: Mapping[str, Any]) -> str:
        if entry.get("original_key"):
            return str(entry["original_key"])
        usual = f"observation.images.{name}"
        return usual if name not in features and usual in features else name

    return Modality(
        state=vectors("state", "observation.state"),
        action=vectors("action", "action"),
        video={name: video_feature(name, entry) for name, entry in (raw.get("video") or {}).items()},
        language={
            name: entry.get("original_key") or f"annotation.{name}"
            for name, entry in (raw.get("annotation") or {}).items()
        },
    )


def default_modality(info: Mapping[str, Any]) -> Modality:
    """One part per state and action column, one camera per video feature, the task index as language.

    Part names are the column names without `observation.` (`observation.state` -> `state`), camera names without
    `observation.images.`.
    """
    state: dict[str, VectorPart] = {}
    action: dict[str, VectorPart] = {}
    video: dict[str, str] = {}
    for column, feature in info.get("features", {}).items():
        shape = feature.get("shape") or [1]
        if feature.get("dtype") == "video":
            video[column.removeprefix("observation.images.")] = column
        elif column == "observation.state" or column.startswith("observation.state."):
            state[column.removeprefix("observation.")] = VectorPart(column, 0, int(shape[0]))
        elif column == "action" or column.startswith("action."):
            action[column] = VectorPart(column, 0, int(shape[0]))
    return Modality(state=state, action=action, video=video, language={"task": "task_index"})
