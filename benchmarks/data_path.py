"""Loading samples: ours against upstream's way of reading the same windows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import torch
from torch.nn import functional

from benchmarks import long_video, measure
from benchmarks.report import Row, Section
from vla_backend import Backend
from vla_dit4dit.config import DiT4DiTConfig
from vla_dit4dit.data.batch import collate, padded
from vla_dit4dit.data.dataset import DiT4DiTDataset, build_dataset
from vla_train.config.schema import Config
from vla_train.data.config import DataConfig, DatasetConfig, RobotConfig

EXAMPLE = Path(__file__).parents[1] / "examples" / "data" / "metaworld_button_press_topdown"
SAMPLES, ROUNDS = 16, 5
DELTAS, RATIO = list(range(9)), 2


def measure_all(backend: Backend) -> Section:
    """Rows: the same float frames, frames as decoded, and a video with few keyframes."""
    with tempfile.TemporaryDirectory(prefix="vla-bench-") as folder:
        sparse = long_video.write(Path(folder) / "sparse")
        rows = [
            row("96 px, a keyframe every 2 frames: the same float32 frames", EXAMPLE, backend, 2.2),
            row("the same set: frames as decoded, to be resized on the device", EXAMPLE, backend, 5.0, raw=True),
            row("256 px, a keyframe every 250 frames: the same float32 frames", sparse, backend, 1.4),
        ]
    return Section("DiT4DiT: loading samples", _NOTE, rows)


def row(what: str, folder: Path, backend: Backend, bound: float, *, raw: bool = False) -> Row:
    ours, upstream = _loader(folder, backend, raw=raw), _Upstream(folder, backend)
    # Other places in every round, as in training; the same ones for both.
    places = iter(np.random.default_rng(0).integers(0, len(upstream.dataset), (2 * ROUNDS + 4, SAMPLES)).tolist())
    if not raw:
        indices = next(places)
        difference = (upstream(indices)["images"] - ours(indices)["images"]).abs().max().item()
        if difference > 1e-6:
            raise AssertionError(f"the two ways of loading differ by {difference}")
    rounds = [next(places) for _ in range(ROUNDS + 1)]
    turns = {"upstream": iter(rounds), "ours": iter(rounds)}
    taken = measure.seconds(
        {"upstream": lambda: upstream(next(turns["upstream"])), "ours": lambda: ours(next(turns["ours"]))}, ROUNDS
    )
    found = measure.ratio(taken, "upstream", "ours")
    seconds = ", ".join(f"{name} {median(values) / SAMPLES * 1000:.1f} ms" for name, values in taken.items())
    return Row(what, f"{found:.1f}x ({seconds} a sample)", f"{bound:g}x", found >= bound)


class _Upstream:
    """Upstream's way, on PyAV like ours so that only the way differs.

    Per sample the whole table is read and the video opened anew, every frame of the window is decoded and converted by
    itself although only every second is used, and frames are resized one by one; whether they are bytes is looked up
    twice, by the reader and by the model.
    """

    def __init__(self, folder: Path, backend: Backend) -> None:
        self.dataset = _build(folder, backend, raw=False)

    def __call__(self, indices: list[int]) -> dict[str, Any]:
        return collate([self._sample(index) for index in indices])

    def _sample(self, index: int) -> dict[str, Any]:
        dataset = self.dataset
        number, step = dataset.sampler.draw(index)
        source, transforms = dataset.sources[number], dataset.transforms[number]
        episode, step = source.locate(step)
        files, robot, modality = source.dataset.files, source.robot, source.dataset.modality
        table = pq.read_table(files.table(episode.index)).to_pydict()

        def rows(column: str, deltas: Sequence[int]) -> np.ndarray:
            return np.asarray(table[column], dtype=np.float64)[
                np.clip(step + np.asarray(deltas), 0, episode.length - 1)
            ]

        frames = [
            frame
            for camera in robot.cameras
            for frame in decode(files.video(episode.index, modality.video[camera]).path, rows("timestamp", DELTAS))
        ]
        parts = {
            group: {
                part.name: rows(spec.column, deltas)[:, spec.start : spec.end]
                for part in wanted
                for spec in [modality.part(group, part.name, source.dataset.folder)]
            }
            for group, wanted, deltas in (
                ("state", robot.state, robot.state_deltas),
                ("action", robot.action, robot.action_deltas),
            )
        }
        action, real = padded(transforms["action"].forward(parts["action"]), dataset.config.max_action_dim)
        state, _ = padded(transforms["state"].forward(parts["state"]), dataset.config.max_state_dim)
        size = dataset.config.image_size
        return {
            "images": torch.stack(
                [resize(torch.from_numpy(frame).permute(2, 0, 1), size) for frame in frames[::RATIO]]
            ),
            "lang": source.dataset.instruction(episode, step, robot.language),
            "action": action,
            "action_mask": np.broadcast_to(real, action.shape),
            "state": state,
            "sample_id": str(index),
        }


def resize(frame: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """(3, H, W) uint8 -> (3, size[0], size[1]) float32 in [0, 1]; whether to divide is looked up in the picture."""
    frame = frame.contiguous().float()
    if frame.max() > 1:
        frame = frame / 255
    resized = functional.interpolate(frame[None], tuple(size), mode="bilinear")[0]
    # The model looks again. White that was rounded up to 1.0000001 makes it divide once more, which we do not copy.
    resized.max().item()
    return resized


def decode(path: Path, times: np.ndarray) -> list[np.ndarray]:
    """The frames (H, W, 3) nearest to `times`, from a file opened for them: seek, then decode up to the last one."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        container.seek(int(times[0] / stream.time_base), stream=stream, backward=True)
        decoded = []
        for frame in container.decode(stream):
            decoded.append((frame.time, frame))
            if frame.time >= times[-1]:
                break
        stamps = np.asarray([time for time, _ in decoded])
        return [decoded[int(np.abs(stamps - time).argmin())][1].to_ndarray(format="rgb24") for time in times]


def _build(folder: Path, backend: Backend, *, raw: bool) -> DiT4DiTDataset:
    data = DataConfig(
        datasets=[DatasetConfig(path=str(folder), robot="robot")],
        robots={"robot": RobotConfig()},
        video_delta_indices=DELTAS,
        action_video_freq_ratio=RATIO,
        max_state_dim=16,
        max_action_dim=8,
        decoder="pyav",
    )
    model = DiT4DiTConfig(resize_on_device=raw)
    return build_dataset(Config(model=model, data=data), backend.video_ctx)


def _loader(folder: Path, backend: Backend, *, raw: bool) -> Callable[[list[int]], dict[str, Any]]:
    dataset = _build(folder, backend, raw=raw)
    # An epoch reads every episode many times; opening it the first time is not what it spends its time on.
    for number, source in enumerate(dataset.sources):
        for episode in source.episodes:
            dataset.sample(number, episode, 0)
    return lambda indices: collate(dataset.__getitems__(indices))


_NOTE = (
    f"Batches of {SAMPLES} samples at random places, windows of {len(DELTAS)} frames of which every second is used, "
    f"224 x 224, PyAV, one worker, every episode read once before; median of the ratios of {ROUNDS} rounds, processor "
    "seconds of one thread. Resizing on the device is not part of loading."
)
