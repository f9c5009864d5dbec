"""Errors of predicted actions per dimension, beside those of the simplest policy: always the training mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vla_train.checkpoint.layout import write_json

# A dimension whose recorded actions never leave the training mean has no baseline to compare with.
CONSTANT = 1e-6


@dataclass(frozen=True)
class Trajectory:
    """One episode: `predicted` and `recorded` actions, both (T, D) in the robot's units; chunks of `stride` steps."""

    name: str
    stride: int
    predicted: np.ndarray
    recorded: np.ndarray


@dataclass
class RobotErrors:
    """Errors of one robot's episodes, per action dimension and averaged over all steps of all episodes.

    The headline number is `normalised_error`: the mean absolute error of each dimension divided by that of the
    training mean action, averaged over the dimensions that vary. It has no unit and treats all dimensions alike.

    Attributes:
        names: of the D action dimensions.
        steps: number of steps averaged over.
        mae, mse: mean absolute and squared error of the prediction, (D,).
        baseline_mae, baseline_mse: of always predicting the training mean action, (D,).
        trajectories: the episodes.
    """

    names: list[str]
    steps: int
    mae: np.ndarray
    mse: np.ndarray
    baseline_mae: np.ndarray
    baseline_mse: np.ndarray
    trajectories: list[Trajectory] = field(default_factory=list)

    @property
    def ratios(self) -> np.ndarray:
        """mae / baseline_mae per dimension; NaN where the recorded action is constant."""
        varies = self.baseline_mae > CONSTANT
        return np.where(varies, self.mae / np.where(varies, self.baseline_mae, 1.0), np.nan)

    @property
    def normalised_error(self) -> float:
        """Mean of `ratios` over the dimensions that vary: 0 is perfect, 1 as good as the training mean."""
        ratios = self.ratios[~np.isnan(self.ratios)]
        return float(ratios.mean()) if len(ratios) else math.nan

    @property
    def overall_ratio(self) -> float:
        """Sum of all mae / sum of all baseline_mae; dimensions count by their size, so units should be alike."""
        return float(self.mae.sum() / self.baseline_mae.sum()) if self.baseline_mae.sum() > CONSTANT else math.nan

    def as_dict(self) -> dict[str, Any]:
        """For JSON; undefined numbers are null."""
        dimensions = [
            {
                "name": name,
                "mae": float(self.mae[i]),
                "mse": float(self.mse[i]),
                "baseline_mae": float(self.baseline_mae[i]),
                "baseline_mse": float(self.baseline_mse[i]),
                "ratio": _null(self.ratios[i]),
            }
            for i, name in enumerate(self.names)
        ]
        episodes = [
            {"name": t.name, "steps": len(t.recorded), "mae": np.abs(t.predicted - t.recorded).mean(0).tolist()}
            for t in self.trajectories
        ]
        return {
            "normalised_error": _null(self.normalised_error),
            "overall_ratio": _null(self.overall_ratio),
            "steps": self.steps,
            "dimensions": dimensions,
            "episodes": episodes,
        }


@dataclass
class OpenLoopReport:
    """Result of an evaluation, by robot tag."""

    robots: dict[str, RobotErrors]

    @property
    def normalised_error(self) -> float:
        """Mean over the robots."""
        return float(np.mean([errors.normalised_error for errors in self.robots.values()]))

    def scalars(self) -> dict[str, float]:
        """For the training log."""
        return {
            "eval/normalised_error": self.normalised_error,
            "eval/mae": float(np.mean([errors.mae.mean() for errors in self.robots.values()])),
            "eval/mse": float(np.mean([errors.mse.mean() for errors in self.robots.values()])),
        }

    def table(self) -> str:
        """Plain text, one line per action dimension."""
        lines = []
        for tag, errors in self.robots.items():
            episodes = len(errors.trajectories)
            lines += [f"{tag}: {episodes} held-out episodes, {errors.steps} steps, mean absolute error"]
            width = max(len(name) for name in [*errors.names, "dimension"])
            lines += [f"  {'dimension':<{width}}  {'model':>10}  {'mean action':>11}  {'ratio':>6}"]
            for name, mae, base, ratio in zip(
                errors.names, errors.mae, errors.baseline_mae, errors.ratios, strict=True
            ):
                shown = "const." if np.isnan(ratio) else f"{ratio:.3f}"
                lines += [f"  {name:<{width}}  {mae:>10.4f}  {base:>11.4f}  {shown:>6}"]
            lines += [
                f"  normalised error (mean ratio of the dimensions that vary) {errors.normalised_error:.3f}, "
                f"all dimensions together {errors.overall_ratio:.3f}"
            ]
        return "\n".join(lines)

    def write_json(self, path: Path, **extra: Any) -> None:
        """Writes the report; `extra` entries come first."""
        robots = {tag: errors.as_dict() for tag, errors in self.robots.items()}
        write_json(path, {**extra, "normalised_error": _null(self.normalised_error), "robots": robots})


def _null(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
