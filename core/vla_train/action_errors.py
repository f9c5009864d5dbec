"""Errors of predicted actions per dimension, beside those of the simplest policy: always the training mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vla_train.checkpoint.layout import write_json

# A dimension whose recorded actions never leave the training mean has no baseline to compare with.
CONSTANT = 1e-6
RESAMPLES = 2000


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

    The 95 % intervals are percentiles of a bootstrap over episodes (Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, section 13.3): steps of one episode resemble each other, so whole episodes are drawn again.

    Attributes:
        names: of the D action dimensions.
        steps: number of steps averaged over.
        mae, mse: mean absolute and squared error of the prediction, (D,).
        baseline_mae, baseline_mse: of always predicting the training mean action, (D,).
        trajectories: the episodes.
        mean_action: of training, (D,); without it there are no intervals.
    """

    names: list[str]
    steps: int
    mae: np.ndarray
    mse: np.ndarray
    baseline_mae: np.ndarray
    baseline_mse: np.ndarray
    trajectories: list[Trajectory] = field(default_factory=list)
    mean_action: np.ndarray | None = None

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

    @cached_property
    def resampled_ratios(self) -> np.ndarray | None:
        """`ratios` of bootstrap samples, (RESAMPLES, D); null with fewer than two episodes."""
        count = len(self.trajectories)
        if count < 2 or self.mean_action is None:
            return None
        error = np.stack([np.abs(t.predicted - t.recorded).sum(0) for t in self.trajectories])
        baseline = np.stack([np.abs(self.mean_action - t.recorded).sum(0) for t in self.trajectories])
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        varies = self.baseline_mae > CONSTANT
        # All drawn episodes may be ones in which a dimension rests, although it moves in others.
        below = np.where((drawn @ baseline > 0) & varies, drawn @ baseline, np.nan)
        return np.asarray(drawn @ error / below)

    @property
    def ratio_intervals(self) -> list[tuple[float, float] | None]:
        """95 % interval of `ratios` per dimension; null where there is none."""
        samples = self.resampled_ratios
        if samples is None:
            return [None] * len(self.names)
        return [
            None if math.isnan(ratio) else percentiles(column)
            for ratio, column in zip(self.ratios, samples.T, strict=True)
        ]

    @property
    def normalised_error_samples(self) -> np.ndarray | None:
        """`normalised_error` of bootstrap samples, (RESAMPLES,)."""
        samples = self.resampled_ratios
        varies = ~np.isnan(self.ratios)
        return None if samples is None or not varies.any() else np.nanmean(samples[:, varies], axis=1)

    @property
    def normalised_error_interval(self) -> tuple[float, float] | None:
        """95 % interval of `normalised_error`."""
        samples = self.normalised_error_samples
        return None if samples is None else percentiles(samples)

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
                "ratio_interval": self.ratio_intervals[i],
            }
            for i, name in enumerate(self.names)
        ]
        episodes = [
            {"name": t.name, "steps": len(t.recorded), "mae": np.abs(t.predicted - t.recorded).mean(0).tolist()}
            for t in self.trajectories
        ]
        return {
            "normalised_error": _null(self.normalised_error),
            "normalised_error_interval": self.normalised_error_interval,
            "overall_ratio": _null(self.overall_ratio),
            "steps": self.steps,
            "dimensions": dimensions,
            "episodes": episodes,
        }


@dataclass
class OpenLoopReport:
    """Result of an evaluation, by robot tag; `split` says in words which episodes were used."""

    robots: dict[str, RobotErrors]
    split: str = "held-out"

    @property
    def normalised_error(self) -> float:
        """Mean over the robots."""
        return float(np.mean([errors.normalised_error for errors in self.robots.values()]))

    @property
    def normalised_error_interval(self) -> tuple[float, float] | None:
        """95 % interval of `normalised_error`; null if a robot has fewer than two episodes."""
        samples = [errors.normalised_error_samples for errors in self.robots.values()]
        if any(part is None for part in samples):
            return None
        # Every robot's samples start from the same seed; shuffled they are independent of each other.
        mixed = [np.random.default_rng(i).permutation(part) for i, part in enumerate(samples) if part is not None]
        return percentiles(np.mean(np.stack(mixed), axis=0))

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
            noun = "episode" if episodes == 1 else "episodes"
            lines += [f"{tag}: {episodes} {self.split} {noun}, {errors.steps} steps, mean absolute error"]
            width = max(len(name) for name in [*errors.names, "dimension"])
            lines += [f"  {'dimension':<{width}}  {'model':>10}  {'mean action':>11}  {'ratio':>6}  95 % interval"]
            for name, mae, base, ratio, interval in zip(
                errors.names, errors.mae, errors.baseline_mae, errors.ratios, errors.ratio_intervals, strict=True
            ):
                shown = "const." if np.isnan(ratio) else f"{ratio:.3f}"
                lines += [f"  {name:<{width}}  {mae:>10.4f}  {base:>11.4f}  {shown:>6}  {_range(interval)}".rstrip()]
            whole = _range(errors.normalised_error_interval)
            lines += [
                f"  normalised error (mean ratio of the dimensions that vary) {errors.normalised_error:.3f}"
                f"{f' (95 % interval {whole})' if whole else ''}, "
                f"all dimensions together {errors.overall_ratio:.3f}"
            ]
        return "\n".join(lines)

    def write_json(self, path: Path, **extra: Any) -> None:
        """Writes the report; `extra` entries come first."""
        robots = {tag: errors.as_dict() for tag, errors in self.robots.items()}
        total = {
            "split": self.split,
            "normalised_error": _null(self.normalised_error),
            "normalised_error_interval": self.normalised_error_interval,
        }
        write_json(path, {**extra, **total, "robots": robots})


def percentiles(samples: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of samples (N,)."""
    low, high = np.nanpercentile(samples, [2.5, 97.5])
    return float(low), float(high)


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def _null(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
