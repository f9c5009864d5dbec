"""A contact sheet of one episode: frames of every camera over the curves of states and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vla_backend import VideoContext
from vla_train.data.errors import DataError
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.metadata import Episode
from vla_train.data.modality import VectorPart
from vla_train.data.tables import Columns
from vla_train.data.video import read_clip

_WIDTH, _PANEL, _TITLE = 15.0, 1.35, 0.6  # inches
_GREY = "#8a8a8a"
_NAMED = 7  # dimensions of one panel, as many as its legend has room for


def find_episode(dataset: LeRobotDataset, index: int) -> Episode:
    """The listed episode with this number.

    Raises:
        DataError: there is none.
    """
    listed = {episode.index: episode for episode in dataset.listed}
    if index not in listed:
        numbers = sorted(listed)
        there = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
        raise DataError(f"{dataset.folder} has no episode {index}", why=f"listed: {there}", fix="choose one of them")
    return listed[index]


def contact_sheet(dataset: LeRobotDataset, episode: Episode, context: VideoContext, frames: int = 8) -> Figure:
    """Draw the sheet.

    Args:
        dataset: the dataset.
        episode: one of it.
        context: decoders.
        frames: frames per camera, evenly spaced from the first step to the last.

    Raises:
        DataError: files are missing or damaged.
    """
    table = dataset.table(episode)
    times = dataset.timestamps(episode)
    steps = np.unique(np.linspace(0, episode.length - 1, max(frames, 1)).round().astype(int))
    views = {}
    for camera in dataset.cameras_on_disk():
        clip = dataset.files.video(episode.index, dataset.modality.video[camera])
        views[camera] = read_clip(clip, times[steps], context)
    curves = {group: _curves(dataset, group, table) for group in ("state", "action")}
    panels = max(len(group) for group in curves.values())
    heights = [_view_height(view, len(steps)) for view in views.values()]
    height = _TITLE + sum(heights) + panels * _PANEL + 0.6
    figure = Figure(figsize=(_WIDTH, height), dpi=100)
    FigureCanvasAgg(figure)
    text = dataset.instruction(episode, 0, next(iter(dataset.modality.language), None))
    title = f"{dataset.name}, episode {episode.index}: {episode.length} steps, {times[-1] - times[0]:.1f} s"
    figure.text(0.01, 1 - 0.18 / height, title, fontsize=12, weight="bold", va="top")
    figure.text(0.01, 1 - 0.42 / height, text, fontsize=11, va="top", color="#444444")
    top = height - _TITLE
    for (camera, view), tall in zip(views.items(), heights, strict=True):
        _draw_view(figure, camera, view, times[steps], top, tall, height)
        top -= tall
    for column, group in enumerate(curves.values()):
        for row, (name, rows, names) in enumerate(group):
            bottom = top - (row + 1) * _PANEL + 0.1
            axes = figure.add_axes((0.04 + 0.5 * column, bottom / height, 0.35, (_PANEL - 0.3) / height))
            _draw_part(axes, name, times, rows, names, times[steps])
            if row < len(group) - 1:
                axes.tick_params(labelbottom=False)
            else:
                axes.set_xlabel("seconds", fontsize=8, labelpad=1)
    return figure


def write_sheet(figure: Figure, path: Path) -> None:
    """Write the figure as PNG; its folder is made if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def _view_height(view: np.ndarray, count: int) -> float:
    """Inches that a row of frames takes, with the label above it."""
    return float((_WIDTH * 0.98 / count) * view.shape[1] / view.shape[2] + 0.3)


def _draw_view(
    figure: Figure, camera: str, view: np.ndarray, times: np.ndarray, top: float, tall: float, height: float
) -> None:
    size = f"{view.shape[2]}x{view.shape[1]}"
    figure.text(0.01, (top - 0.03) / height, f"{camera}  {size}", fontsize=9, va="top", color="#444444")
    width = 0.98 / len(view)
    for number, (frame, time) in enumerate(zip(view, times, strict=True)):
        box = (0.01 + number * width, (top - tall + 0.05) / height, width * 0.98, (tall - 0.3) / height)
        axes = figure.add_axes(box)
        axes.imshow(frame, aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(
            0.02, 0.97, f"{time:.1f} s", transform=axes.transAxes, fontsize=8, va="top", color="white",
            bbox={"facecolor": "black", "alpha": 0.6, "pad": 1.5, "edgecolor": "none"},
        )  # fmt: skip


def _curves(dataset: LeRobotDataset, group: str, table: Columns) -> list[tuple[str, np.ndarray, list[str]]]:
    """Title, rows (T, D) and names of the dimensions of every panel; a wide part takes several."""
    found = []
    for name, part in getattr(dataset.modality, group).items():
        rows = table[part.column].reshape(len(table[part.column]), -1)[:, part.start : part.end]
        names = _dimension_names(dataset, part)
        for first in range(0, part.width, _NAMED):
            end = min(first + _NAMED, part.width)
            title = f"{group}: {name}" + (f" [{first}:{end}]" if part.width > _NAMED else "")
            found.append((title, rows[:, first:end], names[first:end]))
    return found


def _draw_part(axes: Any, title: str, times: np.ndarray, rows: np.ndarray, names: list[str], marks: np.ndarray) -> None:
    for mark in marks:
        axes.axvline(mark, color=_GREY, linewidth=0.4, alpha=0.6)
    for i, name in enumerate(names):
        axes.plot(times, rows[:, i], linewidth=1.1, label=name)
    constant = np.isfinite(rows).all() and (rows == rows[0]).all()
    axes.set_title(f"{title}{'  (constant)' if constant else ''}", fontsize=9, loc="left", pad=2)
    axes.tick_params(labelsize=7, length=2, pad=1)
    axes.margins(x=0.005)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.1), frameon=False, labelspacing=0.15, handlelength=1
    )


def _dimension_names(dataset: LeRobotDataset, part: VectorPart) -> list[str]:
    """Names of `info.json` where it gives one per dimension, else numbers."""
    given = dataset.info.get("features", {}).get(part.column, {}).get("names")
    while isinstance(given, list) and len(given) == 1 and isinstance(given[0], list):
        given = given[0]
    if isinstance(given, dict):
        given = next(iter(given.values()), None)
    if isinstance(given, list) and len(given) >= part.end and all(isinstance(name, str) for name in given):
        return list(given[part.start : part.end])
    return [str(i) for i in range(part.width)]
