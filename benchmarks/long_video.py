"""A LeRobot set whose videos are slow to read at random: 256 x 256 pixels, a keyframe every 250 frames."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EPISODES, LENGTH, SIZE, KEYFRAME, FPS = 2, 400, 256, 250, 20
CAMERA = "observation.images.top"


def write(folder: Path) -> Path:
    """Write the set (v2.1, 4-d state and action, one camera); answers `folder`."""
    generator = np.random.default_rng(0)
    meta, data, videos = folder / "meta", folder / "data" / "chunk-000", folder / "videos" / "chunk-000" / CAMERA
    for path in (meta, data, videos):
        path.mkdir(parents=True)
    for episode in range(EPISODES):
        _table(episode, generator, data / f"episode_{episode:06d}.parquet")
        _video(generator, videos / f"episode_{episode:06d}.mp4")
    parts = {"all": {"start": 0, "end": 4}}
    _json(meta / "modality.json", {"state": parts, "action": parts, "video": {"top": {"original_key": CAMERA}}})
    _json(meta / "info.json", _info())
    lines = [{"episode_index": number, "tasks": ["wait"], "length": LENGTH} for number in range(EPISODES)]
    (meta / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (meta / "tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "wait"}) + "\n")
    return folder


def _table(episode: int, generator: np.random.Generator, path: Path) -> None:
    steps = np.arange(LENGTH)
    vectors = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(generator.normal(size=LENGTH * 4).astype(np.float32)), 4)
        for name in ("observation.state", "action")
    }
    columns = {
        **vectors,
        "timestamp": pa.array((steps / FPS).astype(np.float32)),
        "frame_index": pa.array(steps),
        "episode_index": pa.array(np.full(LENGTH, episode)),
        "index": pa.array(steps + episode * LENGTH),
        "task_index": pa.array(np.zeros(LENGTH, np.int64)),
    }
    pq.write_table(pa.table(columns), path)


def _video(generator: np.random.Generator, path: Path) -> None:
    """A noisy scene that moves, so that frames cost what those of a camera cost."""
    scene = generator.integers(0, 256, (SIZE // 4, SIZE // 4 + LENGTH, 3)).astype(np.uint8).repeat(4, 0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": str(KEYFRAME), "keyint_min": str(KEYFRAME), "sc_threshold": "0", "preset": "veryfast"}
        for step in range(LENGTH):
            image = np.ascontiguousarray(scene[:, step : step + SIZE // 4].repeat(4, 1))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def _info() -> dict[str, object]:
    vector = {"dtype": "float32", "shape": [4], "names": list("abcd")}
    number = {"dtype": "int64", "shape": [1], "names": None}
    video = {"video.fps": FPS, "video.codec": "h264", "video.pix_fmt": "yuv420p", "has_audio": False}
    return {
        "codebase_version": "v2.1",
        "robot_type": "none",
        "total_episodes": EPISODES,
        "total_frames": EPISODES * LENGTH,
        "total_tasks": 1,
        "total_videos": EPISODES,
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{EPISODES}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {
            CAMERA: {
                "dtype": "video",
                "shape": [SIZE, SIZE, 3],
                "names": ["height", "width", "channels"],
                "info": video,
            },
            "observation.state": vector,
            "action": vector,
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), number),
        },
    }


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
