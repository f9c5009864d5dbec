"""A robot configuration resolved against one dataset: every key listed, every part with its mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vla_train.data.config import RobotConfig
from vla_train.data.errors import DataError
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.normalize import check_mode
from vla_train.data.rotations import check_representation


@dataclass(frozen=True)
class Part:
    """One named part of state or action: how it is normalised and, for a rotation, converted before."""

    name: str
    mode: str
    rotation: str | None = None


@dataclass(frozen=True)
class Robot:
    """What is read from one dataset.

    Attributes:
        name: robot type.
        tag: group of datasets that share normalisation statistics.
        state, action: parts in the order they are concatenated.
        cameras: views in the order they are laid out.
        language: annotation name; `None` = the task of the episode.
        action_deltas: step offsets of the action window.
        video_deltas: step offsets of the frames.
        state_deltas: step offsets of the states.
    """

    name: str
    tag: str
    state: tuple[Part, ...]
    action: tuple[Part, ...]
    cameras: tuple[str, ...]
    language: str | None
    action_deltas: tuple[int, ...]
    video_deltas: tuple[int, ...]
    state_deltas: tuple[int, ...] = (0,)


def resolve_robot(
    name: str,
    config: RobotConfig,
    dataset: LeRobotDataset,
    *,
    action_horizon: int,
    video_deltas: Iterable[int] | None,
) -> Robot:
    """Fill in what `config` leaves open from the dataset's `modality.json`, and check the rest against it.

    Args:
        name: robot type.
        config: its configuration.
        dataset: the dataset it is applied to.
        action_horizon: steps the model predicts.
        video_deltas: `data.video_delta_indices`.

    Raises:
        DataError: a key that the dataset lacks, an unknown mode, an action window the model cannot use.
    """
    where = dataset.folder / "meta" / "modality.json"
    modality = dataset.modality
    state = _names(config.state_keys, modality.state, "state")
    action = _names(config.action_keys, modality.action, "action")
    if not action:
        raise DataError(
            f"{dataset.folder} has no action",
            why="no action part in meta/modality.json and no action column in meta/info.json",
            fix="record the actions, or describe them in meta/modality.json",
        )
    for group, names in (("state", state), ("action", action)):
        for part in names:
            modality.part(group, part, where)
    on_disk = dataset.cameras_on_disk()
    cameras = _names(config.video_keys, on_disk, "video")
    for camera in cameras:
        if camera not in on_disk:
            raise DataError(
                f"{dataset.folder} has no videos of camera {camera!r}",
                why=f"robot {name!r} needs it; cameras with files: {', '.join(on_disk) or 'none'}",
                fix="download the videos, or choose the robot's video_keys",
            )
    if not cameras:
        raise DataError(
            f"{dataset.folder} has no videos",
            why=f"no files for {', '.join(dataset.modality.video) or 'any camera'} of meta/modality.json",
            fix=f"download its videos/ folder, or correct the keys; `vla data check {dataset.folder}` says more",
        )
    horizon = config.action_horizon or action_horizon
    if horizon != action_horizon:
        raise DataError(
            f"robot {name!r} gives {horizon} action steps, the model predicts {action_horizon}",
            why="the action window of the data and the model's action horizon must be equal",
            fix=f"set model.action_head.action_horizon={horizon}, or describe the robot under data.robots with "
            f"action_horizon: {action_horizon}",
        )
    return Robot(
        name=name,
        tag=config.tag or name,
        state=_parts(name, "state", state, config.state_transform, config.state_modes, config.state_rotations),
        action=_parts(name, "action", action, config.action_transform, config.action_modes, config.action_rotations),
        cameras=cameras,
        language=_language(name, config.language_key, dataset),
        action_deltas=tuple(range(horizon)),
        video_deltas=tuple(config.observation_indices if video_deltas is None else video_deltas),
    )


def _names(keys: Iterable[str] | None, present: Iterable[str], group: str) -> tuple[str, ...]:
    return tuple(present if keys is None else (key.removeprefix(f"{group}.") for key in keys))


def _parts(
    robot: str,
    group: str,
    names: tuple[str, ...],
    transform: str,
    modes: dict[str, str],
    rotations: dict[str, str],
) -> tuple[Part, ...]:
    extra = ("sincos",) if group == "state" else ()
    modes = {key.removeprefix(f"{group}."): value for key, value in modes.items()}
    rotations = {key.removeprefix(f"{group}."): value for key, value in rotations.items()}
    unknown = [key for key in (*modes, *rotations) if key not in names]
    if unknown:
        raise DataError(
            f"robot {robot!r} sets a mode for {group} parts it does not use",
            why=f"{', '.join(unknown)}; used: {', '.join(names)}",
            fix=f"correct {group}_modes or {group}_keys",
        )
    parts = [Part(name, modes.get(name, transform), rotations.get(name)) for name in names]
    for part in parts:
        check_mode(part.mode, f"the {group} modes of robot {robot!r}", extra=extra)
        if part.rotation:
            check_representation(part.rotation, f"the {group} rotations of robot {robot!r}")
    return tuple(parts)


def _language(robot: str, key: str | None, dataset: LeRobotDataset) -> str | None:
    annotations = dataset.modality.language
    if key is None:
        return next(iter(annotations), None)
    name = key.removeprefix("annotation.")
    if name not in annotations:
        raise DataError(
            f"{dataset.folder} has no annotation {name!r}",
            why=f"robot {robot!r} takes the instruction from it; present: {', '.join(annotations) or 'none'}",
            fix='add it to meta/modality.json, e.g. "annotation": {"' + name + '": {"original_key": "task_index"}}',
        )
    return name
