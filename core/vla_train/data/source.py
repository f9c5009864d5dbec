"""One dataset read as one robot: every (episode, step) gives a window of raw data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_backend import VideoContext
from vla_train.data.errors import DataError
from vla_train.data.lerobot import Episode, LeRobotDataset
from vla_train.data.robot import Robot
from vla_train.data.statistics import Statistics, dataset_statistics, part_statistics
from vla_train.data.video import read_clip
from vla_train.data.windows import clamp_steps, cut_rows, valid_steps


@dataclass
class Window:
    """Raw data around one step.

    Attributes:
        state: parts by name, (number of `state_deltas`, D) float64.
        action: parts by name, (A, D) float64; steps beyond the episode are padded.
        action_valid: (A,) bool, false where padded.
        video: frames by camera, (T, H, W, 3) uint8 RGB.
        language: the instruction.
    """

    state: dict[str, np.ndarray]
    action: dict[str, np.ndarray]
    action_valid: np.ndarray
    video: dict[str, np.ndarray]
    language: str


class RobotSource:
    """The windows of one dataset.

    Args:
        dataset: the dataset.
        robot: what is read from it.
        context: how videos are decoded.
        split: "train", "eval" or "all".
        holdout: the last `holdout` usable episodes are the eval split and are not trained on.

    Attributes:
        episodes: of the split.
        training: of the training split, which statistics are made from.

    Raises:
        DataError: files are missing, or the split would be empty.
    """

    def __init__(
        self, dataset: LeRobotDataset, robot: Robot, context: VideoContext, *, split: str = "train", holdout: int = 0
    ) -> None:
        self.dataset, self.robot, self.context = dataset, robot, context
        modality = dataset.modality
        columns = [modality.state[part.name].column for part in robot.state]
        columns += [modality.action[part.name].column for part in robot.action]
        dataset.use_columns([*columns, modality.language.get(robot.language or "", "task_index")])
        usable = dataset.usable_episodes(robot.cameras, robot.language)
        if holdout >= len(usable):
            raise DataError(
                f"{dataset.folder} has {len(usable)} usable episodes",
                why=f"data.holdout_episodes={holdout} leaves none to train on",
                fix="hold out fewer episodes",
            )
        training = usable[: len(usable) - holdout]
        if split == "eval" and not holdout:
            raise DataError(
                "there is no held-out data to evaluate on",
                why="data.holdout_episodes is 0",
                fix="set data.holdout_episodes to the number of episodes per dataset to keep from training; "
                "`vla eval --split all` takes those that were trained on",
            )
        held_out = usable[len(usable) - holdout :]
        self.episodes: list[Episode] = {"train": training, "all": usable}.get(split, held_out)
        self.training = training
        self._whole = not holdout
        self._ends = np.cumsum([episode.length for episode in self.episodes])

    def __len__(self) -> int:
        """Number of steps in the split."""
        return int(self._ends[-1])

    @property
    def trajectories(self) -> int:
        """Episodes that the dataset lists, also unusable ones; with held-out episodes those of the split."""
        return len(self.dataset.listed) if self._whole else len(self.episodes)

    def locate(self, step: int) -> tuple[Episode, int]:
        """The episode and the step within it of the `step`-th step of the split."""
        number = int(np.searchsorted(self._ends, step, side="right"))
        episode = self.episodes[number]
        return episode, int(step - (self._ends[number] - episode.length))

    def statistics(self) -> dict[str, Statistics]:
        """Statistics of the robot's parts, by "state" and "action".

        From all tables on disk; with held-out episodes from the tables of the training episodes only.
        """
        files, episodes = self.dataset.files, None
        paths = files.table_paths()
        if not self._whole:
            paths = list(dict.fromkeys(files.table(episode.index) for episode in self.training))
            if files.shared:
                episodes = [episode.index for episode in self.training]
        columns = dataset_statistics(self.dataset.folder, paths, whole=self._whole, episodes=episodes)
        where, modality = self.dataset.folder, self.dataset.modality
        state = {part.name: modality.state[part.name] for part in self.robot.state}
        action = {part.name: modality.action[part.name] for part in self.robot.action}
        return {
            "state": part_statistics(columns, state, where),
            "action": part_statistics(columns, action, where),
        }

    def window(self, episode: Episode, step: int, *, frames: Sequence[int] | None = None) -> Window:
        """The raw data around `step` of `episode`.

        Args:
            episode: one of `episodes`.
            step: 0 <= step < episode.length.
            frames: positions in `robot.video_deltas` to decode; null = all.
        """
        robot, modality = self.robot, self.dataset.modality
        table = self.dataset.table(episode)

        def cut(group: str, name: str, deltas: Sequence[int]) -> np.ndarray:
            part = modality.part(group, name, self.dataset.folder)
            rows = table[part.column].reshape(episode.length, -1)[:, part.start : part.end]
            return cut_rows(rows, step, deltas, absolute=part.absolute)

        deltas = robot.video_deltas if frames is None else [robot.video_deltas[i] for i in frames]
        times = self.dataset.timestamps(episode)[clamp_steps(step, deltas, episode.length)]
        return Window(
            state={part.name: cut("state", part.name, robot.state_deltas) for part in robot.state},
            action={part.name: cut("action", part.name, robot.action_deltas) for part in robot.action},
            action_valid=valid_steps(step, robot.action_deltas, episode.length),
            video={
                camera: read_clip(self.dataset.files.video(episode.index, modality.video[camera]), times, self.context)
                for camera in robot.cameras
            },
            language=self.dataset.instruction(episode, step, robot.language),
        )
