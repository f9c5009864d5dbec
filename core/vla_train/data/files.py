"""Finding an episode's files, whatever the path templates of `info.json` claim."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_train.data.errors import DataError

TABLE = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"


@dataclass(frozen=True)
class Clip:
    """The part of a video file that shows one episode.

    Attributes:
        path: video file.
        start: time in the file, in seconds, that the episode's timestamps count from.
        end: time in the file at which the next episode starts; infinite when the file holds one episode.
    """

    path: Path
    start: float = 0.0
    end: float = math.inf


class EpisodeFiles:
    """Paths of tables and videos of one dataset folder in LeRobot v2: one file each per episode.

    The folder is listed once. A path formatted from the template counts if it exists; otherwise the file of the
    same name elsewhere under `data/` (`videos/` or `video/`) is taken. That covers templates that put the episode
    number where the chunk number belongs, and a `video/` folder where `videos/` is announced.

    Args:
        folder: dataset folder.
        info: content of `meta/info.json`.
    """

    listing = "meta/episodes.jsonl"
    shared = False  # whether files hold several episodes

    def __init__(self, folder: Path, info: Mapping[str, Any]) -> None:
        self.folder = folder
        self._table_template = str(info.get("data_path") or TABLE)
        self._video_template = str(info.get("video_path") or VIDEO)
        self._chunk = int(info.get("chunks_size") or 1000)
        self._tables = {name: path for path, _, name in walk(folder, ("data",), ".parquet")}
        self._videos: dict[tuple[str, str], str] = {}
        for path, parent, name in walk(folder, ("video", "videos"), ".mp4"):
            self._videos[parent, name] = path
        self._known = {*self._tables.values(), *self._videos.values()}

    def has_videos(self, feature: str) -> bool:
        """Whether any video of this feature exists."""
        return any(parent == feature for parent, _ in self._videos)

    def episodes_on_disk(self) -> set[int]:
        """Episodes that have a table of the usual name."""
        found = (re.fullmatch(r"episode_(\d+)\.parquet", name) for name in self._tables)
        return {int(match[1]) for match in found if match}

    def oddities(self) -> list[str]:
        """In what the folder is not laid out as `info.json` says; nothing of it hinders reading."""
        odd = []
        if self._tables and "{episode_chunk" not in self._table_template:
            odd.append(f"data_path is {self._table_template!r}, without episode_chunk")
        elif self._tables and not any(
            self._format(self._table_template, i, "") in self._known for i in self.episodes_on_disk()
        ):
            odd.append(f"no table is where data_path says ({self._table_template!r})")
        tops = {path.split("/", 1)[0] for path in self._videos.values()}
        if tops - {self._video_template.split("/", 1)[0]}:
            odd.append(f"videos are in {'/, '.join(sorted(tops))}/, video_path says {self._video_template!r}")
        return odd

    def table_paths(self) -> list[Path]:
        """All tables on disk, sorted."""
        return sorted(self.folder / path for path in self._tables.values())

    def table(self, index: int) -> Path:
        """Path of the table of episode `index`; a missing file is a `DataError`."""
        return self._require(self._find_table(index), self._format(self._table_template, index, ""))

    def video(self, index: int, feature: str) -> Clip:
        """The video of `feature` of episode `index`; a missing file is a `DataError`."""
        path = self._require(self._find_video(index, feature), self._format(self._video_template, index, feature))
        return Clip(path)

    def absent(self, index: int, features: Iterable[str]) -> str | None:
        """The first file the episode lacks (as `info.json` would name it), or `None`."""
        if self._find_table(index) is None:
            return self._format(self._table_template, index, "")
        for feature in features:
            if self._find_video(index, feature) is None:
                return self._format(self._video_template, index, feature)
        return None

    def _format(self, template: str, index: int, feature: str) -> str:
        try:
            return template.format(episode_chunk=index // self._chunk, episode_index=index, video_key=feature)
        except (KeyError, IndexError, ValueError) as error:
            raise DataError(
                f"{self.folder}/meta/info.json: path template {template!r} cannot be filled in",
                why=f"{type(error).__name__}: {error}",
                fix="use {episode_chunk}, {episode_index} and {video_key}",
            ) from error

    def _find_table(self, index: int) -> str | None:
        path = self._format(self._table_template, index, "")
        return path if path in self._known else self._tables.get(path.rsplit("/", 1)[-1])

    def _find_video(self, index: int, feature: str) -> str | None:
        path = self._format(self._video_template, index, feature)
        return path if path in self._known else self._videos.get((feature, path.rsplit("/", 1)[-1]))

    def _require(self, found: str | None, expected: str) -> Path:
        if found is None:
            raise DataError(
                f"{self.folder / expected} does not exist",
                why=f"the episode is listed in {self.listing}",
                fix="download the file, or set data.skip_missing_episodes=true to go on without such episodes",
            )
        return self.folder / found


def walk(folder: Path, tops: Iterable[str], suffix: str) -> Iterable[tuple[str, str, str]]:
    """(path relative to folder with /, name of the parent folder, file name) of all files ending in `suffix`."""
    for top in tops:
        for root, _, names in sorted(os.walk(folder / top, followlinks=True)):
            relative = Path(root).relative_to(folder).as_posix()
            for name in names:
                if name.endswith(suffix):
                    yield f"{relative}/{name}", Path(root).name, name
