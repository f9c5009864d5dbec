"""The metadata of a dataset, read piece by piece so that one damaged file does not hide what is wrong elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vla_train.data.check.findings import ERROR, Finding
from vla_train.data.errors import DataError
from vla_train.data.files import EpisodeFiles
from vla_train.data.metadata import Episode, find_files, read_episodes, read_info, read_tasks
from vla_train.data.modality import Modality, VectorPart, default_modality, read_modality
from vla_train.data.shared_files import SharedFiles

T = TypeVar("T")


@dataclass(frozen=True)
class Scope:
    """What of a dataset a training run reads; null = everything that `modality.json` names.

    Attributes:
        state: names of state parts.
        action: names of action parts.
        cameras: names of cameras.
        skip_missing: episodes without files are left out on purpose.
    """

    state: tuple[str, ...] | None = None
    action: tuple[str, ...] | None = None
    cameras: tuple[str, ...] | None = None
    skip_missing: bool = False


@dataclass
class Contents:
    """What the checks look at; `findings` collects what they find."""

    folder: Path
    info: dict[str, Any]
    files: EpisodeFiles | SharedFiles
    modality: Modality
    listed: list[Episode]
    tasks: dict[int, str]
    scope: Scope
    findings: list[Finding] = field(default_factory=list)
    present: list[Episode] = field(default_factory=list)

    def add(self, severity: str, kind: str, file: Path | str, what: str, remedy: str = "") -> None:
        """Record a finding; a path is made relative to the folder."""
        if isinstance(file, Path):
            file = file.relative_to(self.folder).as_posix() if file.is_relative_to(self.folder) else str(file)
        self.findings.append(Finding(severity, kind, file, what, remedy))

    def parts(self) -> Iterator[tuple[str, str, VectorPart]]:
        """(group, name, place) of every state and action part in scope."""
        for group in ("state", "action"):
            wanted = getattr(self.scope, group)
            for name, part in getattr(self.modality, group).items():
                if wanted is None or name in wanted:
                    yield group, name, part

    def cameras(self) -> dict[str, str]:
        """Video feature by camera in scope."""
        wanted = self.scope.cameras
        return {name: feature for name, feature in self.modality.video.items() if wanted is None or name in wanted}

    def columns(self) -> set[str]:
        """Table columns that the parts in scope are cut from."""
        return {part.column for _, _, part in self.parts()}


def read_contents(folder: Path, scope: Scope) -> Contents:
    """Everything under `meta/` that can be read; the rest are findings.

    Raises:
        DataError: the folder is no dataset at all.
    """
    info = read_info(folder)
    failures: list[Finding] = []

    def attempt(read: Callable[[], T], fallback: T) -> T:
        try:
            return read()
        except DataError as error:
            failures.append(Finding(ERROR, "unreadable-metadata", "meta", f"{error.what}: {error.why}", error.fix))
            return fallback

    modality = attempt(lambda: read_modality(folder, info), default_modality(info))
    listed: list[Episode] = attempt(lambda: read_episodes(folder, info), [])
    tasks: dict[int, str] = attempt(lambda: read_tasks(folder, info), {})
    return Contents(folder, info, find_files(folder, info), modality, listed, tasks, scope, failures)
