"""Writes episodes in the LeRobot v2.1 layout: parquet tables, h264 videos and the files under meta/."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Part:
    """A named slice of the state or action vector, for modality.json: `names` are its dimensions."""

    name: str
    names: tuple[str, ...]


@dataclass
class Episode:
    """One demonstration of T steps: `images[t]` and `states[t]` were seen before `actions[t]` was applied."""

    images: np.ndarray  # uint8 (T, H, W, 3)
    states: np.ndarray  # float32 (T, S)
    actions: np.ndarray  # float32 (T, A)


@dataclass
class LeRobotWriter:
    """Writes episodes in the LeRobot v2.1 layout; `finish()` makes the set complete."""

    root: Path
    task: str
    fps: int
    robot_type: str
    camera: str
    state: tuple[Part, ...]
    action: tuple[Part, ...]
    crf: int = 23
    chunk_size: int = 1000
    lengths: list[int] = field(default_factory=list)
    _shape: tuple[int, ...] = ()
    _stats: list[dict[str, Any]] = field(default_factory=list)

    DATA_PATH = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    VIDEO_PATH = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"

    @property
    def video_key(self) -> str:
        return f"observation.images.{self.camera}"

    def add(self, episode: Episode) -> None:
        """Writes one episode's table and video.

        Raises:
            ValueError: the parts of the episode differ in length, or the image size differs from earlier episodes.
        """
        length = len(episode.images)
        if not length or {len(episode.states), len(episode.actions)} != {length}:
            raise ValueError(
                f"an episode needs as many states and actions as images, got {length} images, "
                f"{len(episode.states)} states and {len(episode.actions)} actions"
            )
        if self._shape and episode.images.shape[1:] != self._shape:
            raise ValueError(f"image size {episode.images.shape[1:]} differs from earlier episodes' {self._shape}")
        self._shape = episode.images.shape[1:]
        index, first_row = len(self.lengths), sum(self.lengths)
        names = {"episode_chunk": index // self.chunk_size, "episode_index": index, "video_key": self.video_key}
        columns: dict[str, np.ndarray] = {
            "observation.state": episode.states.astype(np.float32),
            "action": episode.actions.astype(np.float32),
            "timestamp": (np.arange(length) / self.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, index),
            "index": np.arange(first_row, first_row + length),
            "task_index": np.zeros(length, dtype=np.int64),
        }
        write_table(self.root / self.DATA_PATH.format(**names), columns)
        write_video(self.root / self.VIDEO_PATH.format(**names), episode.images, self.fps, self.crf)
        self.lengths.append(length)
        stats = {key: column_stats(values) for key, values in columns.items()}
        stats[self.video_key] = image_stats(episode.images)
        self._stats.append({"episode_index": index, "stats": stats})

    def finish(self) -> None:
        """Writes meta/: info, episodes, tasks, per-episode statistics and the GR00T-style modality file."""
        meta = self.root / "meta"
        meta.mkdir(parents=True, exist_ok=True)
        (meta / "info.json").write_text(json.dumps(self._info(), indent=1) + "\n")
        (meta / "modality.json").write_text(json.dumps(self._modality(), indent=1) + "\n")
        write_lines(meta / "tasks.jsonl", [{"task_index": 0, "task": self.task}])
        episodes = [{"episode_index": i, "tasks": [self.task], "length": n} for i, n in enumerate(self.lengths)]
        write_lines(meta / "episodes.jsonl", episodes)
        write_lines(meta / "episodes_stats.jsonl", self._stats)

    def _info(self) -> dict[str, Any]:
        height, width, channels = self._shape
        count = len(self.lengths)
        scalar = {"shape": [1], "names": None}
        video_info = {
            "video.height": height,
            "video.width": width,
            "video.channels": channels,
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.fps": self.fps,
            "video.is_depth_map": False,
            "has_audio": False,
        }
        return {
            "codebase_version": "v2.1",
            "robot_type": self.robot_type,
            "total_episodes": count,
            "total_frames": sum(self.lengths),
            "total_tasks": 1,
            "total_videos": count,
            "total_chunks": -(-count // self.chunk_size),
            "chunks_size": self.chunk_size,
            "fps": self.fps,
            "splits": {"train": f"0:{count}"},
            "data_path": self.DATA_PATH,
            "video_path": self.VIDEO_PATH,
            "features": {
                self.video_key: {
                    "dtype": "video",
                    "shape": list(self._shape),
                    "names": ["height", "width", "channels"],
                    "info": video_info,
                },
                "observation.state": vector(self.state),
                "action": vector(self.action),
                "timestamp": {"dtype": "float32", **scalar},
                **{k: {"dtype": "int64", **scalar} for k in ("frame_index", "episode_index", "index", "task_index")},
            },
        }

    def _modality(self) -> dict[str, Any]:
        return {
            "state": ranges(self.state),
            "action": ranges(self.action),
            "video": {self.camera: {"original_key": self.video_key}},
            "annotation": {"human.task_description": {"original_key": "task_index"}},
        }


def vector(parts: tuple[Part, ...]) -> dict[str, Any]:
    """info.json's entry of a float vector made of `parts`."""
    names = [name for part in parts for name in part.names]
    return {"dtype": "float32", "shape": [len(names)], "names": names}


def ranges(parts: tuple[Part, ...]) -> dict[str, dict[str, int]]:
    """modality.json's entry of the same vector: start and end of every part."""
    result, start = {}, 0
    for part in parts:
        result[part.name] = {"start": start, "end": start + len(part.names)}
        start += len(part.names)
    return result


def write_table(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Writes one episode's parquet table; a (T, D) column becomes a list of D values per row."""
    arrays = [
        pa.array(v) if v.ndim == 1 else pa.FixedSizeListArray.from_arrays(pa.array(v.reshape(-1)), v.shape[1])
        for v in columns.values()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays, names=list(columns)), path, compression="zstd")


def write_video(path: Path, images: np.ndarray, fps: int, crf: int) -> None:
    """Encodes uint8 (T, H, W, 3) as h264.

    Every second frame is a key frame, as in LeRobot's own encoder, so that random access decodes at most two frames.
    One encoder thread: the same images give the same bytes on every machine with the same encoder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        options = {"crf": str(crf), "g": "2", "threads": "1", "preset": "slow"}
        stream = container.add_stream("libx264", rate=fps, options=options)
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, fps)
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")))
        container.mux(stream.encode(None))


def column_stats(values: np.ndarray) -> dict[str, list[float]]:
    """LeRobot v2.1 statistics of one column: min, max, mean and std per dimension, and the number of rows."""
    values = values.reshape(len(values), -1)
    summary = {name: getattr(values, name)(axis=0).tolist() for name in ("min", "max", "mean", "std")}
    return {**summary, "count": [len(values)]}


def image_stats(images: np.ndarray) -> dict[str, list[Any]]:
    """The same per colour channel, of pixels scaled to [0, 1], in LeRobot's (3, 1, 1) shape."""
    pixels = images.reshape(-1, images.shape[-1]) / 255.0
    return {k: v if k == "count" else [[[x]] for x in v] for k, v in column_stats(pixels).items()} | {
        "count": [len(images)]
    }


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
