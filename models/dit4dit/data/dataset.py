"""DiT4DiT's training samples: a mixture of robot datasets with merged normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from vla_backend import VideoContext
from vla_dit4dit.data.batch import padded
from vla_dit4dit.data.images import Layout, lay_out, raw_views
from vla_dit4dit.data.report import statistics_report
from vla_dit4dit.data.selection import select_datasets
from vla_train.closed_loop.environments import Observation
from vla_train.closed_loop.policy import live_window
from vla_train.data.check import check_before_training
from vla_train.data.config import DataConfig
from vla_train.data.errors import DataError
from vla_train.data.lerobot import Episode, LeRobotDataset
from vla_train.data.mixture import MixtureSampler
from vla_train.data.robot import resolve_robot
from vla_train.data.source import RobotSource, Window
from vla_train.data.statistics import Statistics, merge_statistics
from vla_train.data.transform import VectorTransform
from vla_train.data.video import resolve_decoder


@dataclass(frozen=True)
class EpisodeRef:
    """One episode of the split, for evaluation that walks whole episodes.

    Attributes:
        name: "dataset/episode".
        tag: whose statistics un-normalise its actions.
        length: steps.
        source: position of its dataset.
        episode: the episode.
    """

    name: str
    tag: str
    length: int
    source: int
    episode: Episode


class DiT4DiTDataset(Dataset[dict[str, Any]]):
    """Samples drawn from a mixture of LeRobot datasets.

    Sample:
        images: (T, 3, H, W) float32 in [0, 1]; the observation, then the future frames.
        lang: the instruction.
        action: (A, max_action_dim) float16, normalised, zero-padded.
        action_mask: (A, max_action_dim) bool, true where `action` counts in the loss.
        state: (1, max_state_dim) float16, zero-padded; absent for a robot without state.
        state_mask: (1, max_state_dim) bool.
        sample_id: "dataset/episode/step".

    Args:
        config: the `data:` section.
        sources: the datasets.
        weights: their sampling weights.
        split: "train" draws by (epoch, index, seed); "eval" and "all" by index alone.
        resize_on_device: `__getitems__` leaves resizing and layout to the model.

    Raises:
        DataError: datasets that do not fit together or into the configured widths.
    """

    def __init__(
        self,
        config: DataConfig,
        sources: list[RobotSource],
        weights: list[float],
        split: str,
        *,
        resize_on_device: bool = False,
    ) -> None:
        self.config, self.sources = config, sources
        self.layout = None if resize_on_device else Layout(tuple(config.image_size), config.extra_views)
        self.sampler = MixtureSampler(
            [len(source) for source in sources], weights, seed=config.seed, train=split == "train"
        )
        self._frames = range(0, len(sources[0].robot.video_deltas), config.action_video_freq_ratio)
        self.merged: dict[str, dict[str, Statistics]] = self._merge()
        self.transforms = [self._transforms(source) for source in sources]
        self.statistics: dict[str, Any] = statistics_report(self.merged, sources)
        self._check()

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Choose the sampling map; without effect when `data.reshuffle_each_epoch` is false."""
        if self.config.reshuffle_each_epoch:
            self.sampler.epoch = epoch

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.sample(*self._place(index))

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The samples of one batch, which `collate` resizes all at once.

        Instead of `images` each holds `views`, the frames of every camera as decoded, (T, 3, h, w) uint8 by view, and
        `layout`, what makes images of them; None leaves that to the model.
        """
        return [self._sample(*self._place(index), raw=True) for index in indices]

    def sample_id(self, index: int) -> str:
        """The `sample_id` of a sample that is not read."""
        number, episode, step = self._place(index)
        return f"{self.sources[number].dataset.name}/{episode.index}/{step}"

    def _place(self, index: int) -> tuple[int, Episode, int]:
        """Dataset, episode and step of a sample of this epoch."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        number, step = self.sampler.draw(index)
        episode, step = self.sources[number].locate(step)
        return number, episode, step

    def sample(self, number: int, episode: Episode, step: int) -> dict[str, Any]:
        """The sample at `step` of `episode` of dataset `number`."""
        return self._sample(number, episode, step)

    def _sample(self, number: int, episode: Episode, step: int, *, raw: bool = False) -> dict[str, Any]:
        source = self.sources[number]
        window = source.window(episode, step, frames=self._frames)
        return self._build(number, window, f"{source.dataset.name}/{episode.index}/{step}", raw=raw)

    def episodes(self) -> list[EpisodeRef]:
        """All episodes of the split."""
        return [
            EpisodeRef(f"{source.dataset.name}/{episode.index}", source.robot.tag, episode.length, number, episode)
            for number, source in enumerate(self.sources)
            for episode in source.episodes
        ]

    def episode_samples(self, ref: EpisodeRef, stride: int) -> Iterator[dict[str, Any]]:
        """Samples at steps 0, stride, 2 stride ... of one episode.

        Each holds in addition `step` and `raw_action`, (n, D) float64 in the dataset's units: the recorded actions
        of the window without those beyond the end of the episode.
        """
        source = self.sources[ref.source]
        for step in range(0, ref.length, stride):
            window = source.window(ref.episode, step, frames=self._frames)
            sample = self._build(ref.source, window, f"{source.dataset.name}/{ref.episode.index}/{step}")
            raw = np.concatenate([window.action[part.name] for part in source.robot.action], axis=-1)
            yield {**sample, "step": step, "raw_action": raw[window.action_valid]}

    def live_sample(self, number: int, seen: Sequence[Observation]) -> dict[str, Any]:
        """What `sample` would give for dataset `number` after the observations `seen`; `action` is meaningless."""
        source = self.sources[number]
        window = live_window(source, seen, self._frames)
        return self._build(number, window, f"{source.dataset.name}/live/{len(seen) - 1}")

    def action_names(self, tag: str) -> list[str]:
        """Names of the action dimensions of a tag: the part's name, numbered if it has several dimensions."""
        number = [source.robot.tag for source in self.sources].index(tag)
        source = self.sources[number]
        widths = {part.name: source.dataset.modality.action[part.name].width for part in source.robot.action}
        return [name if n == 1 else f"{name}[{i}]" for name, n in widths.items() for i in range(n)]

    def unnormalize_actions(self, actions: np.ndarray, tag: str | None = None) -> np.ndarray:
        """Actions (..., max_action_dim) as the model predicts them, in the dataset's units, (..., D).

        Args:
            actions: normalised actions.
            tag: whose statistics; may be left out when there is only one.

        Raises:
            DataError: `tag` is unknown, or left out although there are several.
        """
        tags = [source.robot.tag for source in self.sources]
        if tag is None and len(set(tags)) == 1:
            tag = tags[0]
        if tag not in tags:
            raise DataError(
                f"no action statistics for {tag!r}", why=f"tags: {', '.join(sorted(set(tags)))}", fix="name one of them"
            )
        return self.transforms[tags.index(tag)]["action"].inverse(np.asarray(actions, dtype=np.float64))

    def _build(self, number: int, window: Window, sample_id: str, *, raw: bool = False) -> dict[str, Any]:
        config, source, transforms = self.config, self.sources[number], self.transforms[number]
        action, real = padded(transforms["action"].forward(window.action), config.max_action_dim)
        mask = np.broadcast_to(real, action.shape).copy()
        if config.mask_padded_actions:
            mask[~window.action_valid] = False
        sample: dict[str, Any] = {
            "lang": window.language,
            "action": action,
            "action_mask": mask,
            "sample_id": sample_id,
        }
        if raw:
            sample |= {"views": raw_views(window.video), "layout": self.layout}
        else:
            sample["images"] = lay_out(window.video, config.image_size, config.extra_views)
        if source.robot.state:
            state, real = padded(transforms["state"].forward(window.state), config.max_state_dim)
            sample |= {"state": state, "state_mask": np.broadcast_to(real, state.shape).copy()}
        return sample

    def _merge(self) -> dict[str, dict[str, Statistics]]:
        """Statistics by tag, over the datasets of that tag only."""
        per_tag: dict[str, list[int]] = {}
        for number, source in enumerate(self.sources):
            per_tag.setdefault(source.robot.tag, []).append(number)
        merged = {}
        for tag, members in per_tag.items():
            weights = [float(self.sampler.weights[number]) for number in members]
            found = [self.sources[number].statistics() for number in members]
            merged[tag] = {
                group: merge_statistics([stats[group] for stats in found], weights) for group in ("action", "state")
            }
        return merged

    def _transforms(self, source: RobotSource) -> dict[str, VectorTransform]:
        robot, modality, stats = source.robot, source.dataset.modality, self.merged[source.robot.tag]
        where = source.dataset.folder / "meta" / "modality.json"
        return {
            "action": VectorTransform(robot.action, modality.action, stats["action"], where),
            "state": VectorTransform(robot.state, modality.state, stats["state"], where),
        }

    def _check(self) -> None:
        for source, transforms in zip(self.sources, self.transforms, strict=True):
            width = transforms["action"].width
            if width > self.config.max_action_dim:
                raise DataError(
                    f"the actions of {source.dataset.folder} have {width} dimensions",
                    why=f"data.max_action_dim is {self.config.max_action_dim}",
                    fix=f"raise data.max_action_dim (and the model's action_dim) to {width} or more",
                )
        if len({bool(source.robot.state) for source in self.sources}) > 1:
            raise DataError(
                "some datasets of the mixture have a state and others have none",
                why=", ".join(f"{s.dataset.name}: {len(s.robot.state)} state parts" for s in self.sources),
                fix="set state_keys: [] for all of them, or leave the others out",
            )
        clips = {(len(s.robot.video_deltas), len(s.robot.cameras)) for s in self.sources}
        if len(clips) > 1:
            raise DataError(
                "the datasets of the mixture give clips of different shape",
                why=", ".join(
                    f"{s.dataset.name}: {len(s.robot.video_deltas)} frames x {len(s.robot.cameras)} views"
                    for s in self.sources
                ),
                fix="set data.video_delta_indices, and the same number of video_keys for every robot",
            )


def build_dataset(config: Any, video_ctx: VideoContext, split: str = "train") -> DiT4DiTDataset:
    """The dataset a configuration describes.

    Args:
        config: complete configuration; `config.data`, `config.model.resize_on_device` and
            `config.model.action_head.action_horizon` are read.
        video_ctx: the backend's decoders.
        split: "train", "eval" for the held-out episodes, or "all".

    Raises:
        DataError: anything about the data that is not as configured.
    """
    data: DataConfig = config.data
    for key, message, remedy in data.problems():
        raise DataError(f"{key}: {message}", fix=remedy)
    context = resolve_decoder(data.decoder, video_ctx)
    members, weights = [], []
    for entry, robot_config in select_datasets(data):
        dataset = LeRobotDataset(Path(data.root) / entry.path, skip_missing=data.skip_missing_episodes)
        robot = resolve_robot(
            entry.robot,
            robot_config,
            dataset,
            action_horizon=int(config.model.action_head.action_horizon),
            video_deltas=data.video_delta_indices,
        )
        members.append((dataset, robot))
        weights.append(float(entry.weight))
    if split == "train" and data.check != "off":
        check_before_training(members, context)
    sources = [
        RobotSource(dataset, robot, context, split=split, holdout=data.holdout_episodes) for dataset, robot in members
    ]
    return DiT4DiTDataset(data, sources, weights, split, resize_on_device=config.model.resize_on_device)
