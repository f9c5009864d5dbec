"""The whole check of one dataset."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vla_backend import VideoContext
from vla_train.data.check.contents import Contents, Scope, read_contents
from vla_train.data.check.decode import decode_all, video_paths
from vla_train.data.check.findings import WARNING, Report
from vla_train.data.check.layout import check_layout
from vla_train.data.check.rows import Tables, check_tables
from vla_train.data.check.videos import check_videos
from vla_train.data.decoders import DECODERS
from vla_train.data.metadata import format_version
from vla_train.data.video import resolve_decoder

__all__ = ["Scope", "check_dataset"]

Progress = Callable[[int], Callable[[], None]]


def check_dataset(
    folder: Path | str,
    *,
    deep: bool = False,
    scope: Scope | None = None,
    context: VideoContext | None = None,
    progress: Progress = lambda total: lambda: None,
) -> Report:
    """Everything that is wrong with the dataset in `folder`.

    Reads the metadata, every table, and the header of every video: seconds per 1,000 episodes. Writes nothing.

    Args:
        folder: dataset folder.
        deep: decode every frame as well: minutes per 1,000 episodes.
        scope: what of it a run reads; null = all that `modality.json` names.
        context: decoders that must be able to read the videos; null = any that is installed.
        progress: `progress(total)` is called with the number of videos and answers what is called after each.

    Raises:
        DataError: the folder is no LeRobot dataset.
    """
    started = time.perf_counter()
    folder = Path(folder)
    context = context or resolve_decoder("auto", VideoContext(decoders=tuple(DECODERS)))
    contents = read_contents(folder, scope or Scope())
    check_layout(contents)
    tables = check_tables(contents)
    _check_statistics(contents, tables)
    total = len(video_paths(contents))
    step = progress(total * (2 if deep else 1))
    cameras = check_videos(contents, tables, context, step)
    if deep:
        decode_all(contents, step)
    report = Report(str(folder), _facts(contents, cameras, deep), contents.findings)
    report.sort()
    report.facts["seconds"] = round(time.perf_counter() - started, 3)
    return report


def _facts(contents: Contents, cameras: dict[str, Any], deep: bool) -> dict[str, Any]:
    return {
        "format": format_version(contents.info),
        "episodes": len(contents.listed),
        "episodes_present": len(contents.present),
        "frames": sum(episode.length for episode in contents.present),
        "fps": contents.info.get("fps"),
        "tasks": len(contents.tasks),
        "cameras": cameras,
        "deep": deep,
    }


def _check_statistics(contents: Contents, tables: Tables) -> None:
    """`meta/stats.json` is not used here, but by others: say when it is that of other data."""
    path = contents.folder / "meta" / "stats.json"
    if not path.is_file():
        return
    try:
        stats = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        contents.add(WARNING, "statistics", path, f"is not JSON: {error}", "`vla data stats` computes them anew")
        return
    for column in sorted(contents.columns()):
        bounds = tables.bounds(column)
        given = stats.get(column) if isinstance(stats, dict) else None
        if bounds is None or not isinstance(given, dict):
            continue
        for name, ours in zip(("min", "max"), bounds, strict=True):
            theirs = np.asarray(given.get(name, []), dtype=np.float64).reshape(-1)
            slack = 1e-4 * np.maximum(np.abs(ours), 1)
            if theirs.shape != ours.shape or (np.abs(theirs - ours) > slack).any():
                contents.add(
                    WARNING,
                    "statistics",
                    path,
                    f"{name} of {column!r} is not that of the tables",
                    "nothing to do here: statistics are computed from the tables",
                )
                break
