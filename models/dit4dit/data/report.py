"""`dataset_statistics.json`: what a deployed policy needs to turn predictions back into actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vla_train.data.source import RobotSource
from vla_train.data.statistics import Statistics

_ORDER = ("mean", "std", "max", "min", "q01", "q99")


def statistics_report(merged: Mapping[str, Mapping[str, Statistics]], sources: Sequence[RobotSource]) -> dict[str, Any]:
    """Merged statistics in DiT4DiT's file format.

    Returns:
        {tag: {action: {mean, std, max, min, q01, q99, mask}, state: {...}, num_transitions, num_trajectories}}; parts
        are concatenated in the robot's order, `mask` is false for parts with "gripper" in their name.
    """
    report: dict[str, Any] = {}
    for tag, groups in merged.items():
        members = [source for source in sources if source.robot.tag == tag]
        entry: dict[str, Any] = {}
        for group in ("action", "state"):
            names = list(dict.fromkeys(part.name for source in members for part in getattr(source.robot, group)))
            if not names:
                continue
            entry[group] = {key: [v for name in names for v in groups[group][name][key]] for key in _ORDER}
            if group == "action":
                entry[group]["mask"] = [
                    "gripper" not in name.lower() for name in names for _ in groups[group][name]["mean"]
                ]
        entry["num_transitions"] = sum(len(source) for source in members)
        entry["num_trajectories"] = sum(source.trajectories for source in members)
        report[tag] = entry
    return report


def unnormalize(
    actions: np.ndarray, statistics: Mapping[str, Any], *, rule: str = "min_max", binary_dims: Sequence[int] = ()
) -> np.ndarray:
    """Predicted actions to the robot's units, from the file's `action` entry alone.

    Clip to [-1, 1]; `binary_dims` become 0 below 0.5, else 1; where `mask` is true
    0.5 (x + 1) (high - low) + low, elsewhere x.

    Args:
        actions: (..., >= D) normalised; further dimensions are dropped.
        statistics: the `action` entry of one tag, D values per statistic.
        rule: "min_max" (what training normalised with) or "q99" (DiT4DiT's own framework method).
        binary_dims: dimensions that are switches; LIBERO's gripper is [6].

    Returns:
        (..., D) float64.

    Raises:
        ValueError: unknown rule.
    """
    names = {"min_max": ("min", "max"), "q99": ("q01", "q99")}
    if rule not in names:
        raise ValueError(f"rule is {rule!r}; use one of {', '.join(names)}")
    low, high = (np.asarray(statistics[name], dtype=np.float64) for name in names[rule])
    mask = np.asarray(statistics.get("mask", np.ones(len(low), dtype=bool)))
    clipped = np.clip(np.asarray(actions)[..., : len(low)], -1, 1)
    for dim in binary_dims:
        clipped[..., dim] = np.where(clipped[..., dim] < 0.5, 0, 1)
    return np.where(mask, 0.5 * (clipped + 1) * (high - low) + low, clipped)
