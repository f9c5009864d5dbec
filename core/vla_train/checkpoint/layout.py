"""Names on disk: `checkpoints/step_00000100/`, `checkpoints/latest`."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "checkpoints"
LATEST: Final = "latest"
MANIFEST: Final = "manifest.json"
SCALER: Final = "loss_scaler.json"
POSITION: Final = "data_position.json"
#: In the folder of a run, and as it was at that moment in every checkpoint.
DECISIONS: Final = "decisions.json"
_NAME: Final = re.compile(r"step_(\d+)")


def step_name(step: int) -> str:
    return f"step_{step:08d}"


def draft_name(step: int) -> str:
    """Where a checkpoint is written before it is complete; no reader looks there."""
    return f".{step_name(step)}.partial"


def rng_name(rank: int, world_size: int) -> str:
    return f"rng-{rank:05d}-of-{world_size:05d}.safetensors"


def saved_steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint folder, newest first."""
    if not folder.is_dir():
        return []
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    return sorted((int(match.group(1)) for match in found if match), reverse=True)


def write_json(path: Path, value: Any) -> None:
    """Write so that a reader sees the old file or the whole new one."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def clear_drafts(folder: Path) -> None:
    """Delete what interrupted saves left."""
    for leftover in folder.glob(".step_*.partial*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def has_manifest(checkpoint: Path) -> bool:
    return (checkpoint / MANIFEST).is_file()


def rotate(folder: Path, keep: int, good: Callable[[Path], bool] = has_manifest) -> list[int]:
    """Delete all but the newest `keep` good checkpoints and what interrupted saves left; answers the steps deleted.

    Others newer than the oldest one kept are left for inspection; `keep` 0 deletes no checkpoint.

    Args:
        good: whether a checkpoint folder counts as one to keep.
    """
    clear_drafts(folder)
    if keep <= 0:
        return []
    steps = saved_steps(folder)
    kept: list[int] = []
    for step in steps:
        if good(folder / step_name(step)):
            kept.append(step)
        if len(kept) == keep:
            break
    else:
        return []
    oldest = kept[-1]
    doomed = [step for step in steps if step < oldest]
    for step in doomed:
        # The manifest goes first, so that a deletion cut short leaves nothing that looks complete.
        (folder / step_name(step) / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder / step_name(step))
    return doomed
