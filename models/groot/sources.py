"""LeRobot datasets read as embodiments, and their statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vla_groot.modality import Embodiment
from vla_groot.state_action import StateActionProcessor
from vla_train.data.config import RobotConfig
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.robot import Robot, resolve_robot
from vla_train.data.source import RobotSource
from vla_train.data.statistics import STATISTICS, Statistics, merge_statistics

GROUPS = ("state", "action")
EPISODE_TASK = "task"  # language key that means the episode's task


def whole_dataset_embodiment(dataset: LeRobotDataset, horizon: int) -> Embodiment:
    """Modality configs that use every part of a dataset, with absolute actions; for robots nobody described."""
    from vla_groot.modality import ModalityConfig

    language = next((f"annotation.{name}" for name in dataset.modality.language), EPISODE_TASK)
    return {
        "video": ModalityConfig((0,), tuple(dataset.cameras_on_disk())),
        "state": ModalityConfig((0,), tuple(dataset.modality.state)),
        "action": ModalityConfig(tuple(range(horizon)), tuple(dataset.modality.action)),
        "language": ModalityConfig((0,), (language,)),
    }


def open_dataset(
    folder: Path, tag: str, embodiment: Embodiment | None, *, horizon: int, skip_missing: bool = False
) -> tuple[LeRobotDataset, Robot, Embodiment]:
    """A dataset, and what is read of it as the embodiment `tag`; without modality configs that is everything.

    Raises:
        DataError: the dataset lacks what the embodiment needs.
    """
    dataset = LeRobotDataset(folder, skip_missing=skip_missing)
    embodiment = embodiment or whole_dataset_embodiment(dataset, horizon)
    key = embodiment["language"].modality_keys[0]
    steps = len(embodiment["action"].delta_indices)
    config = RobotConfig(
        state_keys=list(embodiment["state"].modality_keys) if "state" in embodiment else [],
        action_keys=list(embodiment["action"].modality_keys),
        video_keys=list(embodiment["video"].modality_keys),
        language_key=None if key == EPISODE_TASK else key,
        action_horizon=steps,
        tag=tag,
    )
    robot = resolve_robot(tag, config, dataset, action_horizon=steps, video_deltas=None)
    robot = dataclasses.replace(
        robot,
        action_deltas=embodiment["action"].delta_indices,
        video_deltas=embodiment["video"].delta_indices,
        state_deltas=embodiment["state"].delta_indices if "state" in embodiment else (0,),
        language=None if key == EPISODE_TASK else robot.language,
    )
    return dataset, robot, embodiment


def usable_span(embodiment: Embodiment) -> int:
    """Steps from the first to the last action of a sample."""
    deltas = embodiment["action"].delta_indices
    return max(deltas) - min(deltas) + 1


def relative_statistics(source: RobotSource, tag: str, embodiment: Embodiment) -> dict[str, dict[str, Any]]:
    """Statistics per step of every action part marked as relative, each (H, D), over all whole windows.

    min, max, mean, std (population), q01 and q99.
    """
    processor, deltas = StateActionProcessor({tag: embodiment}), np.asarray(embodiment["action"].delta_indices)
    modality = source.dataset.modality
    collected: dict[str, list[np.ndarray]] = {}
    for episode in source.training:
        starts = np.arange(max(0, episode.length - usable_span(embodiment) + 1))
        if not len(starts):
            continue
        table = source.dataset.table(episode)

        def rows(group: str, name: str, at: np.ndarray, table: Any = table, length: int = episode.length) -> np.ndarray:
            part = modality.part(group, name, source.dataset.folder)
            return table[part.column].reshape(length, -1)[:, part.start : part.end][at].astype(np.float64)

        # A window ends with the last action, wherever its first one starts.
        windows = starts[:, None] + (deltas - min(int(deltas.min()), 0))[None, :]
        states = {part.name: rows("state", part.name, starts[:, None]) for part in source.robot.state}
        actions = {part.name: rows("action", part.name, windows) for part in source.robot.action}
        for key, value in processor.relative_action(actions, tag, states).items():
            collected.setdefault(key, []).append(value)
    found = {}
    for key, pieces in collected.items():
        values = np.concatenate(pieces)
        found[key] = {
            "min": values.min(0).tolist(),
            "max": values.max(0).tolist(),
            "mean": values.mean(0).tolist(),
            "std": values.std(0).tolist(),
            "q01": np.quantile(values, 0.01, axis=0).tolist(),
            "q99": np.quantile(values, 0.99, axis=0).tolist(),
        }
    return found


def merge_relative(per_dataset: Sequence[Mapping[str, Mapping[str, Any]]], weights: Sequence[float]) -> dict[str, Any]:
    """Statistics per step of a mixture, by the rules of `merge_statistics`."""

    def flat(stats: Mapping[str, Mapping[str, Any]]) -> Statistics:
        return {
            key: {name: np.asarray(entry[name]).reshape(-1).tolist() for name in STATISTICS}
            for key, entry in stats.items()
        }

    if not per_dataset or not per_dataset[0]:
        return {}
    shapes = {key: np.asarray(entry["mean"]).shape for key, entry in per_dataset[0].items()}
    merged = merge_statistics([flat(stats) for stats in per_dataset], weights)
    return {
        key: {name: np.asarray(values).reshape(shapes[key]).tolist() for name, values in entry.items()}
        for key, entry in merged.items()
    }


def embodiment_statistics(
    sources: Sequence[RobotSource], embodiments: Sequence[Embodiment], weights: Sequence[float]
) -> dict[str, Any]:
    """Merged statistics by tag: {tag: {state, action, relative_action: {part: {min, max, mean, std, q01, q99}}}}."""
    found: dict[str, Any] = {}
    for tag in dict.fromkeys(source.robot.tag for source in sources):
        members = [index for index, source in enumerate(sources) if source.robot.tag == tag]
        share = [weights[index] for index in members]
        each = [sources[index].statistics() for index in members]
        found[tag] = {group: merge_statistics([stats[group] for stats in each], share) for group in GROUPS}
        relative = [relative_statistics(sources[index], tag, embodiments[index]) for index in members]
        found[tag]["relative_action"] = merge_relative(relative, share)
    return found
