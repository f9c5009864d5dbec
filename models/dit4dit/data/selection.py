"""Which datasets a configuration names, and how each is read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from vla_dit4dit.data.mixtures import MIXTURES
from vla_dit4dit.data.robots import NEW_EMBODIMENT, ROBOTS
from vla_train.data.config import DataConfig, DatasetConfig, RobotConfig
from vla_train.data.errors import DataError


def select_datasets(data: DataConfig) -> list[tuple[DatasetConfig, RobotConfig]]:
    """The datasets of `data.mixture` or `data.datasets` with their robots.

    A repeated (path, robot) counts where it first stands, with the weight it has there.

    Raises:
        DataError: unknown mixture or robot.
    """
    if data.mixture:
        if data.mixture not in MIXTURES:
            raise DataError(
                f"unknown mixture {data.mixture!r}{_nearest(data.mixture, MIXTURES)}",
                why=f"known: {', '.join(MIXTURES)}",
                fix="choose one, or list the datasets under data.datasets",
            )
        entries = [DatasetConfig(path, weight, robot) for path, weight, robot in MIXTURES[data.mixture]]
    else:
        entries = list(data.datasets)
    unique: dict[tuple[str, str], DatasetConfig] = {}
    for entry in entries:
        unique.setdefault((entry.path, entry.robot), entry)
    return [(entry, robot_config(entry.robot, data)) for entry in unique.values()]


def dataset_folders(data: DataConfig) -> list[str]:
    """Folders that a configuration reads, relative to `data.root`, for the checks before anything is loaded.

    Raises:
        DataError: unknown mixture or robot.
    """
    return [entry.path for entry, _ in select_datasets(data)]


def robot_config(name: str, data: DataConfig) -> RobotConfig:
    """The configuration of a robot: the user's own, else a known one, else (`auto`) all keys of the dataset.

    Raises:
        DataError: unknown name.
    """
    if name in data.robots:
        return data.robots[name]
    if name in ROBOTS:
        return ROBOTS[name]
    if name == "auto":
        return RobotConfig(tag=NEW_EMBODIMENT)
    raise DataError(
        f"unknown robot {name!r}{_nearest(name, [*ROBOTS, *data.robots])}",
        why=f"known: {', '.join([*ROBOTS, *data.robots])}",
        fix=f"use robot: auto (all keys of meta/modality.json), or describe it under data.robots.{name}",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
