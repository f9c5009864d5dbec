"""GR00T's training samples: a sharded mixture of LeRobot datasets, each read as an embodiment."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from vla_backend import VideoContext
from vla_groot.build import build_processor
from vla_groot.config import GrootConfig, SamplingConfig
from vla_groot.feature_cache import content_id
from vla_groot.modality import Embodiment
from vla_groot.processor import GrootProcessor, Sample
from vla_groot.schedule import Part, shard_steps
from vla_groot.sources import embodiment_statistics, open_dataset, usable_span
from vla_groot.stream import StepStream
from vla_train.closed_loop.environments import Observation
from vla_train.closed_loop.policy import live_window
from vla_train.data.check import check_before_training
from vla_train.data.config import DataConfig
from vla_train.data.errors import DataError
from vla_train.data.lerobot import Episode
from vla_train.data.source import RobotSource, Window
from vla_train.data.statistics import STATISTICS
from vla_train.data.video import resolve_decoder


@dataclass(frozen=True)
class EpisodeRef:
    """One episode of the split, for evaluation that walks whole episodes; see the engine's `EpisodeRef`."""

    name: str
    tag: str
    length: int
    source: int
    episode: Episode


class GrootDataset(Dataset[dict[str, Any]]):
    """Samples of a mixture.

    The training split is the endless order of the sharded mixture, an epoch being as long as its first one; the eval
    split is every step of the held-out episodes once.

    Sample: state (T, max_state_dim), action and action_mask (max_action_horizon, max_action_dim), embodiment_id,
    input_ids (S,), pixel_values (patches, 1536), image_grid_thw (images, 3), pad_token_id, sample_id.

    Args:
        processor: prepares samples; its statistics of these embodiments are set.
        sources: the datasets.
        embodiments: their modality configs.
        weights: their sampling weights, before `sampling.size_exponent`.
        sampling: sharding.
        seed: of all random choices.
        split: "train" or "eval".
        keep_statistics: statistics the processor has already win.
        shuffle_each_epoch: false repeats the first epoch.
        augment_images: false prepares training images as for evaluation.
        name_contents: samples get a `content_id`, by which features are kept.

    Raises:
        DataError: no episode is as long as one sample.
    """

    def __init__(
        self,
        processor: GrootProcessor,
        sources: Sequence[RobotSource],
        embodiments: Sequence[Embodiment],
        weights: Sequence[float],
        sampling: SamplingConfig,
        *,
        seed: int = 42,
        split: str = "train",
        keep_statistics: bool = False,
        shuffle_each_epoch: bool = True,
        augment_images: bool = True,
        name_contents: bool = False,
    ) -> None:
        self.processor, self.sources = processor, list(sources)
        self.seed, self.split, self.shuffle_each_epoch = seed, split, shuffle_each_epoch
        self.augment_images, self.name_contents = augment_images, name_contents
        self.epoch = 0
        weights = _sized(weights, sources, embodiments, sampling)
        found = embodiment_statistics(sources, embodiments, weights)
        for source, embodiment in zip(sources, embodiments, strict=True):
            processor.embodiments[source.robot.tag] = embodiment
        for tag, parts in found.items():
            if not (keep_statistics and tag in processor.statistics):
                processor.statistics[tag] = parts
        self.statistics = {tag: self._report(tag) for tag in found}
        self.action_horizon = min(len(embodiment["action"].delta_indices) for embodiment in embodiments)
        self._ends = np.cumsum([len(source) for source in self.sources]).tolist()
        self.shards: list[list[list[Part]]] = []
        if split == "train":
            self.shards = [
                _shards(source, embodiment, sampling, seed)
                for source, embodiment in zip(sources, embodiments, strict=True)
            ]
            lengths = [[sum(len(steps) for _, steps in shard) for shard in shards] for shards in self.shards]
            self.stream = StepStream(lengths, weights, sampling.shards_per_epoch, seed)

    def __len__(self) -> int:
        return self.stream.epoch_steps if self.split == "train" else int(self._ends[-1])

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that indices refer to."""
        self.epoch = epoch if self.shuffle_each_epoch else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        number, episode, step = self._place(index)
        random = [self.seed, self.epoch * len(self) + index]
        rng = np.random.default_rng(random) if self.split == "train" else None
        return self.sample(number, episode, step, rng)

    def sample_id(self, index: int) -> str:
        """The `sample_id` of a sample that is not read."""
        number, episode, step = self._place(index)
        return f"{self.sources[number].dataset.name}/{episode.index}/{step}"

    def _place(self, index: int) -> tuple[int, Episode, int]:
        """Dataset, episode and step of a sample of this epoch."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        if self.split != "train":
            number = bisect.bisect_right(self._ends, index)
            source = self.sources[number]
            return number, *source.locate(index - (self._ends[number] - len(source)))
        number, shard, step = self.stream[self.epoch * len(self) + index]
        for episode, steps in self.shards[number][shard]:
            if step < len(steps):
                return number, self.sources[number].episodes[episode], int(steps[step])
            step -= len(steps)
        raise RuntimeError("a shard is shorter than its length")

    def sample(
        self, number: int, episode: Episode, step: int, rng: np.random.Generator | None = None
    ) -> dict[str, Any]:
        """The sample at `step` of `episode` of dataset `number`; with `rng` as in training."""
        source = self.sources[number]
        return self._prepare(number, source.window(episode, step), f"{source.dataset.name}/{episode.index}/{step}", rng)

    def episodes(self) -> list[EpisodeRef]:
        """All episodes of the split."""
        return [
            EpisodeRef(f"{source.dataset.name}/{episode.index}", source.robot.tag, episode.length, number, episode)
            for number, source in enumerate(self.sources)
            for episode in source.episodes
        ]

    def episode_samples(self, ref: EpisodeRef, stride: int) -> Iterator[dict[str, Any]]:
        """Samples at steps 0, stride, ... of one episode, with `step`, `raw_state` and `raw_action` (n, D)."""
        source = self.sources[ref.source]
        for step in range(0, ref.length, stride):
            window = source.window(ref.episode, step)
            raw = np.concatenate([window.action[part.name] for part in source.robot.action], axis=-1)
            sample = self._prepare(ref.source, window, f"{source.dataset.name}/{ref.episode.index}/{step}", None)
            yield {**sample, "step": step, "raw_state": window.state, "raw_action": raw[window.action_valid]}

    def live_sample(self, number: int, seen: Sequence[Observation]) -> dict[str, Any]:
        """What `sample` would give for dataset `number` after the observations `seen`; its actions are meaningless."""
        source = self.sources[number]
        window = live_window(source, seen)
        sample = self._prepare(number, window, f"{source.dataset.name}/live/{len(seen) - 1}", None)
        return {**sample, "raw_state": window.state}

    def action_names(self, tag: str) -> list[str]:
        """Names of the action dimensions: the part's name, numbered if it has several dimensions."""
        widths = self.processor.state_action.widths(tag, "action")
        return [name if n == 1 else f"{name}[{i}]" for name, n in widths.items() for i in range(n)]

    def decode_actions(self, actions: np.ndarray, samples: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Predicted actions (B, max_action_horizon, max_action_dim) of `samples` in the dataset's units, (B, H, D)."""
        tags = [self.sources[sample["source"]].robot.tag for sample in samples]
        decoded = [
            self.processor.decode_action(chunk, tag, sample["raw_state"])
            for chunk, tag, sample in zip(actions, tags, samples, strict=True)
        ]
        return np.stack([np.concatenate(list(parts.values()), axis=-1) for parts in decoded])

    def _prepare(self, number: int, window: Window, sample_id: str, rng: np.random.Generator | None) -> dict[str, Any]:
        source = self.sources[number]
        prepared = self.processor.prepare(
            Sample(
                images=window.video,
                states={key: value.astype(np.float32) for key, value in window.state.items()},
                actions={key: value.astype(np.float32) for key, value in window.action.items()},
                text=window.language,
                embodiment=source.robot.tag,
            ),
            rng,
            augment=self.augment_images,
        )
        content = prepared.pop("vlm_content")
        encoded = self.processor.vlm([content["text"]], content["images"])
        ids = encoded["input_ids"][0]
        if self.name_contents:
            prepared["content_id"] = content_id(ids, encoded["pixel_values"], encoded["image_grid_thw"])
        return {
            **prepared,
            "input_ids": ids,
            "pixel_values": encoded["pixel_values"],
            "image_grid_thw": encoded["image_grid_thw"],
            "pad_token_id": self.processor.vlm.tokenizer.pad_token_id,
            "source": number,
            "sample_id": sample_id,
        }

    def _report(self, tag: str) -> dict[str, Any]:
        """What the engine writes and reads: concatenated statistics; and what an export needs, by part."""
        parts, config = self.processor.statistics[tag], self.processor.embodiments[tag]
        report: dict[str, Any] = {}
        for group in ("action", "state"):
            keys = config[group].modality_keys if group in config else ()
            report[group] = {
                name: [float(v) for key in keys for v in np.atleast_1d(parts[group][key][name])] for name in STATISTICS
            }
        report["parts"] = parts
        report["modality_configs"] = {group: part.to_dict() for group, part in config.items()}
        return report


def _sized(
    weights: Sequence[float],
    sources: Sequence[RobotSource],
    embodiments: Sequence[Embodiment],
    sampling: SamplingConfig,
) -> list[float]:
    """Weights times the number of training shards to the power `size_exponent`."""
    if not sampling.size_exponent:
        return list(weights)
    found = []
    for weight, source, embodiment in zip(weights, sources, embodiments, strict=True):
        lengths = [episode.length for episode in source.training]
        # How steps are shuffled does not change how many shards there are.
        count = len(
            shard_steps(lengths, sampling.shard_size, sampling.episode_sampling_rate, usable_span(embodiment), 0)
        )
        found.append(weight * max(1, count) ** sampling.size_exponent)
    return found


def _shards(source: RobotSource, embodiment: Embodiment, sampling: SamplingConfig, seed: int) -> list[list[Part]]:
    lengths, span = [episode.length for episode in source.episodes], usable_span(embodiment)
    if max(lengths) < span:
        raise DataError(
            f"{source.dataset.folder}: no episode is as long as one sample",
            why=f"the longest has {max(lengths)} steps, the actions of '{source.robot.tag}' span {span}",
            fix="use an embodiment with fewer action steps (delta_indices, or model.action_steps)",
        )
    return shard_steps(lengths, sampling.shard_size, sampling.episode_sampling_rate, span, seed)


def build_dataset(config: Any, video_ctx: VideoContext, split: str = "train") -> GrootDataset:
    """The dataset a configuration describes.

    Args:
        config: complete configuration; `config.data.datasets` with `robot` naming an embodiment, `auto` being
            `config.model.embodiment_tag`.
        video_ctx: the backend's decoders.
        split: "train", or "eval" for the held-out episodes.

    Raises:
        DataError: anything about the data that is not as configured.
        GrootError: unknown embodiments, unreadable files of the checkpoint.
    """
    data: DataConfig = config.data
    section: GrootConfig = config.model
    section.validate()
    if data.mixture or not data.datasets:
        raise DataError(
            "no datasets are named",
            why="data.mixture is not known to groot" if data.mixture else "data.datasets is empty",
            fix="set data.datasets, e.g. data.datasets=[{path: my_dataset, robot: libero_sim}]",
        )
    context, processor = resolve_decoder(data.decoder, video_ctx), build_processor(section)
    members, embodiments, weights = [], [], []
    for entry in data.datasets:
        tag = processor.tag(section.embodiment_tag if entry.robot == "auto" else entry.robot)
        dataset, robot, embodiment = open_dataset(
            Path(data.root) / entry.path,
            tag,
            processor.embodiment(tag) if tag in processor.embodiments else None,
            horizon=section.action_steps,
            skip_missing=data.skip_missing_episodes,
        )
        members.append((dataset, robot))
        embodiments.append(embodiment)
        weights.append(float(entry.weight))
    if split == "train" and data.check != "off":
        check_before_training(members, context)
    sources = [
        RobotSource(dataset, robot, context, split=split, holdout=data.holdout_episodes) for dataset, robot in members
    ]
    return GrootDataset(
        processor,
        sources,
        embodiments,
        weights,
        section.sampling,
        seed=data.seed,
        split=split,
        keep_statistics=section.statistics == "checkpoint",
        shuffle_each_epoch=data.reshuffle_each_epoch,
        augment_images=section.augment_images,
        name_contents=section.feature_cache and split == "train",
    )
