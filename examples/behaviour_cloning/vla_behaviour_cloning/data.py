"""Training samples from LeRobot datasets; reading, normalising and sampling are the engine's."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

from vla_backend import VideoContext
from vla_train.config import Config
from vla_train.data.check import check_before_training
from vla_train.data.config import RobotConfig
from vla_train.data.errors import DataError
from vla_train.data.lerobot import Episode, LeRobotDataset
from vla_train.data.mixture import MixtureSampler
from vla_train.data.robot import Robot, resolve_robot
from vla_train.data.source import RobotSource, Window
from vla_train.data.statistics import STATISTICS, merge_statistics
from vla_train.data.transform import VectorTransform
from vla_train.data.video import resolve_decoder

TAG = "robot"


@dataclass(frozen=True)
class EpisodeRef:
    """One episode of the split; `tag` names the statistics of its actions, `length` is in steps."""

    name: str
    tag: str
    length: int
    source: int
    episode: Episode


class BehaviourCloningDataset(Dataset[dict[str, Any]]):
    """Samples of one kind of robot, drawn from one or more datasets with common statistics.

    Sample: images (V, 3, H, W) float32 in [0, 1]; lang; state (1, S), action (A, D) float32 normalised and zero-padded;
    action_mask (A, D) bool; sample_id "dataset/episode/step".

    Raises:
        DataError: the datasets do not fit together or into the configured widths.
    """

    def __init__(self, config: Config, sources: list[RobotSource], split: str) -> None:
        self.data, self.sources = config.data, sources
        weights = [float(entry.weight) for entry in config.data.datasets]
        lengths = [len(source) for source in sources]
        self.sampler = MixtureSampler(lengths, weights, seed=self.data.seed, train=split == "train")
        found, first = [source.statistics() for source in sources], sources[0]
        merged = {group: merge_statistics([one[group] for one in found], weights) for group in ("action", "state")}
        layout, where = first.dataset.modality, first.dataset.folder / "meta" / "modality.json"
        self.action = VectorTransform(first.robot.action, layout.action, merged["action"], where)
        self.state = VectorTransform(first.robot.state, layout.state, merged["state"], where)
        for group, transform, width in (
            ("state", self.state, self.data.max_state_dim),
            ("action", self.action, self.data.max_action_dim),
        ):
            if not 0 < transform.width <= width:
                raise DataError(
                    f"the {group} of {first.dataset.folder} has {transform.width} dimensions",
                    why=f"data.max_{group}_dim is {width}",
                    fix=f"set data.max_{group}_dim={transform.width}" if transform.width else "use a set that has one",
                )
        self.statistics: dict[str, Any] = {
            TAG: {
                group: {
                    key: [value for part in getattr(first.robot, group) for value in merged[group][part.name][key]]
                    for key in STATISTICS
                }
                for group in ("action", "state")
            }
            | {"num_transitions": sum(lengths), "num_trajectories": sum(len(source.episodes) for source in sources)}
        }

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.epoch = epoch if self.data.reshuffle_each_epoch else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        number, step = self.sampler.draw(index)
        episode, step = self.sources[number].locate(step)
        return self._sample(number, self.sources[number].window(episode, step), episode, step)

    def episodes(self) -> list[EpisodeRef]:
        """All episodes of the split, for evaluation."""
        return [
            EpisodeRef(f"{source.dataset.name}/{episode.index}", TAG, episode.length, number, episode)
            for number, source in enumerate(self.sources)
            for episode in source.episodes
        ]

    def episode_samples(self, ref: EpisodeRef, stride: int) -> Iterator[dict[str, Any]]:
        """Samples at steps 0, stride, ... with `step` and the recorded actions `raw_action` (n, D)."""
        source = self.sources[ref.source]
        for step in range(0, ref.length, stride):
            window = source.window(ref.episode, step)
            raw = np.concatenate([window.action[part.name] for part in source.robot.action], axis=-1)
            sample = self._sample(ref.source, window, ref.episode, step)
            yield {**sample, "step": step, "raw_action": raw[window.action_valid]}

    def unnormalize_actions(self, actions: np.ndarray, tag: str | None = None) -> np.ndarray:
        """Predicted actions in the dataset's own units."""
        return self.action.inverse(np.asarray(actions, dtype=np.float64))

    def _sample(self, number: int, window: Window, episode: Episode, step: int) -> dict[str, Any]:
        action, real = _padded(self.action.forward(window.action), self.data.max_action_dim)
        state, _ = _padded(self.state.forward(window.state), self.data.max_state_dim)
        return {
            "images": torch.cat([_resized(frames, self.data.image_size) for frames in window.video.values()]),
            "lang": window.language,
            "state": state,
            "action": action,
            "action_mask": real & window.action_valid[:, None],
            "sample_id": f"{self.sources[number].dataset.name}/{episode.index}/{step}",
        }


def build_dataset(config: Config, video_ctx: VideoContext, split: str = "train") -> BehaviourCloningDataset:
    """The dataset of a configuration; split "eval" are the held-out episodes.

    Raises:
        DataError: anything about the data that is not as configured.
    """
    data, context = config.data, resolve_decoder(config.data.decoder, video_ctx)
    members = _members(config)
    if split == "train" and data.check != "off":
        check_before_training(members, context)
    sources = [
        RobotSource(dataset, robot, context, split=split, holdout=data.holdout_episodes) for dataset, robot in members
    ]
    return BehaviourCloningDataset(config, sources, split)


def count_views(config: Config) -> int:
    """Cameras of a sample.

    Raises:
        DataError: the datasets differ in it.
    """
    counts = {dataset.name: len(robot.cameras) for dataset, robot in _members(config)}
    if len(set(counts.values())) > 1:
        raise DataError("the datasets have different numbers of cameras", why=str(counts), fix="set video_keys")
    return next(iter(counts.values()))


def _members(config: Config) -> list[tuple[LeRobotDataset, Robot]]:
    data, members = config.data, []
    if not data.datasets:
        raise DataError("this model knows no named mixtures", fix="list the sets under data.datasets")
    for entry in data.datasets:
        dataset = LeRobotDataset(Path(data.root) / entry.path, skip_missing=data.skip_missing_episodes)
        robot = data.robots.get(entry.robot, RobotConfig())
        horizon = config.model.action_horizon
        members.append((dataset, resolve_robot(entry.robot, robot, dataset, action_horizon=horizon, video_deltas=[0])))
    return members


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch: images (B, V, 3, H, W), state (B, 1, S), action and action_mask (B, A, D), words and word_mask (B, L).

    A word is its CRC-32, the same number in every process; the model folds it into its table.
    """
    texts = [
        [zlib.crc32(word.encode()) for word in re.findall(r"[a-z0-9]+", sample["lang"].lower())] for sample in samples
    ]
    longest = max(1, *map(len, texts))
    words = torch.tensor([ids + [0] * (longest - len(ids)) for ids in texts], dtype=torch.int64)
    counts = torch.tensor([len(ids) for ids in texts])
    batch: dict[str, Any] = {
        "words": words,
        "word_mask": torch.arange(longest)[None] < counts[:, None],
        "lang": [sample["lang"] for sample in samples],
        "sample_ids": [sample["sample_id"] for sample in samples],
    }
    for key in ("images", "state", "action", "action_mask"):
        batch[key] = torch.stack([torch.as_tensor(sample[key]) for sample in samples])
    return batch


def _resized(frames: np.ndarray, size: list[int]) -> torch.Tensor:
    """(1, H, W, 3) uint8 to (1, 3, size[0], size[1]) float32 in [0, 1]."""
    images = torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255.0
    return F.interpolate(images, size=tuple(size), mode="bilinear", align_corners=False, antialias=True)


def _padded(values: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(T, D) as float32 (T, width) with zeros at the end, and which dimensions are real (width,)."""
    real = np.arange(width) < values.shape[-1]
    return np.pad(values.astype(np.float32), ((0, 0), (0, width - values.shape[-1]))), real
