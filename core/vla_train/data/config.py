"""The `data:` section of the configuration. No torch here: the launcher reads it before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class DatasetConfig:
    """One LeRobot dataset of a mixture.

    Attributes:
        path: folder of the dataset, relative to `data.root` unless absolute.
        weight: sampling weight relative to the other datasets; > 0.
        robot: a robot type known to the model, a name under `data.robots`, or `auto` (all keys of `modality.json`).
    """

    path: str = "???"
    weight: float = 1.0
    robot: str = "auto"


@dataclass
class RobotConfig:
    """How the columns of one robot's datasets become model inputs.

    Keys are the subkeys of `modality.json` (`gripper`, not `action.gripper`; the prefix is accepted and dropped).
    Modes: `min_max`, `q99`, `mean_std`, `scale`, `binary`, `none`; for states also `sincos`.

    Attributes:
        state_keys: state parts in order; null = all in file order; empty = no state input.
        action_keys: action parts in order; null = all in file order.
        video_keys: cameras in order; null = all that have files.
        language_key: annotation holding the instruction; null = the first one, else the episode's task.
        action_horizon: action steps of one sample; null = what the model predicts.
        observation_indices: frame offsets in steps when `data.video_delta_indices` is null.
        state_transform: mode of every state part that `state_modes` does not name.
        state_modes: mode per state part.
        action_transform: mode of every action part that `action_modes` does not name.
        action_modes: mode per action part.
        state_rotations: target rotation representation per state part (`rotation_6d`, `axis_angle`, `quaternion`,
            `matrix`, `euler_angles_xyz` ...); the source is `rotation_type` in `modality.json`.
        action_rotations: the same per action part.
        tag: datasets with the same tag share merged normalisation statistics; null = the robot's name.
    """

    state_keys: list[str] | None = None
    action_keys: list[str] | None = None
    video_keys: list[str] | None = None
    language_key: str | None = None
    action_horizon: int | None = None
    observation_indices: list[int] = field(default_factory=lambda: [0])
    state_transform: str = "min_max"
    state_modes: dict[str, str] = field(default_factory=dict)
    action_transform: str = "min_max"
    action_modes: dict[str, str] = field(default_factory=dict)
    state_rotations: dict[str, str] = field(default_factory=dict)
    action_rotations: dict[str, str] = field(default_factory=dict)
    tag: str | None = None


@dataclass
class DataConfig:
    """Which demonstrations are read and how a sample is cut from them.

    Attributes:
        root: folder that dataset paths are relative to.
        mixture: name of a mixture known to the model; exclusive with `datasets`.
        datasets: the mixture spelt out.
        robots: the user's own robots by name; a name known to the model is overridden.
        video_delta_indices: frame offsets in steps that make up the clip; null = the robot's `observation_indices`.
        action_video_freq_ratio: every n-th of these frames is used (actions keep their rate).
        max_state_dim: width of the state vector; shorter states are zero-padded, longer ones truncated.
        max_action_dim: width of the action vector; shorter actions are zero-padded and masked out of the loss.
        image_size: [height, width] in pixels every view is resized to.
        extra_views: several cameras without "wrist" in their name: `concat` puts them side by side,
            `as_frames` appends them as if they were later frames (what upstream does).
        mask_padded_actions: leave action steps beyond the end of the episode out of the loss;
            false counts them like real ones (what upstream does).
        reshuffle_each_epoch: draw new samples every epoch; false repeats the draw of epoch 0 (what upstream does).
        seed: seed of the sampling map.
        holdout_episodes: the last N episodes of each dataset are kept from training and from the statistics and
            form the "eval" split.
        skip_missing_episodes: go on without episodes that are listed but not on disk, instead of stopping.
        check: `quick` looks at every table and at the header of every video before training and stops when they would
            kill or falsify the run (seconds per 1,000 episodes; the result is cached); `off` does not.
        decoder: `auto` (first able one in the backend's order), `pyav`, `torchcodec` or `decord`.
        batch_size: samples per device and step.
        num_workers: worker processes per rank; `auto` = the backend's default; 0 = load in the trainer process.
        prefetch_factor: batches every worker keeps ready; null = the backend's default.
    """

    root: str = "."
    mixture: str | None = None
    datasets: list[DatasetConfig] = field(default_factory=list)
    robots: dict[str, RobotConfig] = field(default_factory=dict)
    video_delta_indices: list[int] | None = None
    action_video_freq_ratio: int = 1
    max_state_dim: int = 64
    max_action_dim: int = 32
    image_size: list[int] = field(default_factory=lambda: [224, 224])
    extra_views: str = "concat"
    mask_padded_actions: bool = True
    reshuffle_each_epoch: bool = True
    seed: int = 42
    holdout_episodes: int = 0
    skip_missing_episodes: bool = False
    check: str = "quick"
    decoder: str = "auto"
    batch_size: int = 16
    num_workers: Any = "auto"
    prefetch_factor: int | None = None

    def problems(self) -> list[tuple[str, str, str]]:
        """What is wrong with the values alone, as (key, message, remedy); reads no file."""
        found: list[tuple[str, str, str]] = []
        if bool(self.mixture) == bool(self.datasets):
            found.append(
                (
                    "data.datasets",
                    "both data.mixture and data.datasets are set"
                    if self.mixture
                    else "no data: neither data.mixture nor data.datasets is set",
                    "set exactly one, e.g. data.datasets=[{path: my_dataset}]",
                )
            )
        for name in ("action_video_freq_ratio", "max_state_dim", "max_action_dim", "batch_size"):
            if getattr(self, name) < 1:
                found.append((f"data.{name}", f"is {getattr(self, name)}", "use a whole number of at least 1"))
        if self.holdout_episodes < 0:
            found.append(("data.holdout_episodes", f"is {self.holdout_episodes}", "use 0 or more"))
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            found.append(("data.image_size", f"is {list(self.image_size)}", "use [height, width] in pixels"))
        if self.video_delta_indices is not None and len(self.video_delta_indices) == 0:
            found.append(("data.video_delta_indices", "is empty", "list at least the offset 0, or use null"))
        if self.extra_views not in ("concat", "as_frames"):
            found.append(("data.extra_views", f"is {self.extra_views!r}", "use concat or as_frames"))
        if self.check not in ("quick", "off"):
            found.append(("data.check", f"is {self.check!r}", "use quick or off"))
        if self.num_workers != "auto" and (not isinstance(self.num_workers, int) or self.num_workers < 0):
            found.append(("data.num_workers", f"is {self.num_workers!r}", "use auto or a whole number of at least 0"))
        found += [
            (f"data.datasets[{i}].weight", f"is {entry.weight}", "use a number above 0")
            for i, entry in enumerate(self.datasets)
            if not entry.weight > 0
        ]
        return found
