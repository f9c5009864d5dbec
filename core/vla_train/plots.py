"""Pictures of predicted and recorded action trajectories."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vla_train.action_errors import OpenLoopReport, RobotErrors, Trajectory

RECORDED, PREDICTED = "#444444", "#d1495b"


def plot_report(report: OpenLoopReport, folder: Path, name: str, episodes: int = 1) -> list[Path]:
    """Writes one PNG per robot and episode for the first `episodes` episodes of every robot.

    Args:
        report: of an evaluation.
        folder: made if it does not exist.
        name: start of the file names.
        episodes: how many of each robot's.

    Returns:
        The files, `folder/<name>_<episode>.png`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for errors in report.robots.values():
        for trajectory in errors.trajectories[:episodes]:
            path = folder / f"{name}_{trajectory.name.replace('/', '_')}.png"
            plot_trajectory(trajectory, errors, path)
            written.append(path)
    return written


def plot_trajectory(trajectory: Trajectory, errors: RobotErrors, path: Path) -> None:
    """One panel per action dimension: recorded and predicted over time, the start of every prediction marked."""
    steps, dims = trajectory.recorded.shape
    columns = 1 if dims <= 4 else 2 if dims <= 16 else 3
    rows = math.ceil(dims / columns)
    # No pyplot: its global state is not meant for a training process.
    figure = Figure(figsize=(max(8.0, 5.5 * columns), 1.2 + 1.9 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    time = np.arange(steps)
    starts = time[:: trajectory.stride]
    for dim, axis in enumerate(axes.T.flat):
        if dim >= dims:
            axis.set_axis_off()
            continue
        recorded, predicted = trajectory.recorded[:, dim], trajectory.predicted[:, dim]
        for start in starts:
            axis.axvline(start, color="#dddddd", linewidth=0.8, zorder=0)
        axis.plot(time, recorded, color=RECORDED, linewidth=1.6, label="recorded")
        axis.plot(time, predicted, color=PREDICTED, linewidth=1.3, label="predicted")
        axis.plot(
            starts, predicted[starts], "o", color=PREDICTED, markersize=3.5, label="a new prediction from the camera"
        )
        ratio = errors.ratios[dim]
        note = "constant in the recordings" if np.isnan(ratio) else f"{ratio:.2f} of the mean action's error"
        error = np.abs(predicted - recorded).mean()
        axis.set_title(f"{errors.names[dim]}: mean error {error:.3g} here; all episodes: {note}", fontsize=9)
        axis.set_ylabel("action, robot units", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.margins(x=0.01)
        low, high = min(recorded.min(), predicted.min()), max(recorded.max(), predicted.max())
        if high - low < 1e-6:  # matplotlib would zoom into rounding
            axis.set_ylim(low - 1.0, high + 1.0)
    for axis in axes[-1]:
        axis.set_xlabel("control step", fontsize=8)
        axis.tick_params(labelbottom=True)
    figure.suptitle(
        f"Open-loop prediction, held-out episode {trajectory.name}: {trajectory.stride} steps at a time", fontsize=11
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)
