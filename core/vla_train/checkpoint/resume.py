"""Finding the newest good checkpoint and continuing from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_backend import Backend
from vla_train.checkpoint import layout
from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.manifest import Manifest
from vla_train.checkpoint.rng import load_rng
from vla_train.checkpoint.state import TrainingState
from vla_train.train.setup import seed_everything
from vla_train.train.world import World


@dataclass(frozen=True)
class Found:
    """A checkpoint whose files are all there and unchanged."""

    folder: Path
    manifest: Manifest

    def position(self) -> dict[str, int]:
        """Where the data continues; what `build_loader` takes as `start_position`."""
        position: dict[str, int] = json.loads((self.folder / layout.POSITION).read_text())
        return position


def find(run: Path, resume: str, world: World, say: Callable[[str], None]) -> Found | None:
    """The checkpoint to continue from, the same on every rank; None to start from the beginning.

    Args:
        run: folder of the run.
        resume: "auto", "never", or the path of a checkpoint folder.
        say: told about checkpoints that are passed over.

    Raises:
        CheckpointError: "never" although the run has checkpoints; or the one asked for is not good.
    """
    folder = run / layout.FOLDER
    steps = layout.saved_steps(folder)
    if resume == "never":
        if steps:
            raise CheckpointError(
                f"{run} already has checkpoints, the newest of step {steps[0]}.",
                why="train.resume is never",
                fix="choose another run.id, delete the run, or set train.resume=auto",
            )
        return None
    if resume != "auto":
        path = Path(resume)
        given = Found(path, Manifest.read(path))
        _raise_together(world, path, _share_of_problems(path, given.manifest, world))
        return given
    # Rank 0 names the candidates: another rank's view of a shared folder may lag behind.
    while (step := world.from_main(steps.pop(0) if world.is_main and steps else -1)) >= 0:
        path = folder / layout.step_name(step)
        manifest: Manifest | None = None
        try:
            manifest = Manifest.read(path)
            problems = _share_of_problems(path, manifest, world)
        except CheckpointError as error:
            problems = [error.why or error.what]
        if not world.any(bool(problems)) and manifest is not None:
            return Found(path, manifest)
        for problem in problems or ["another rank found a damaged file"] * world.is_main:
            message = f"checkpoint {path.name} is passed over: {problem}"
            say(message) if world.is_main else print(f"rank {world.rank}: {message}", flush=True)
    return None


def restore(found: Found, state: TrainingState, backend: Backend) -> dict[str, Any]:
    """Fill model and optimizer, whatever the strategy and number of processes; answers the loss scaler's state.

    Raises:
        CheckpointError: the checkpoint does not fit the model.
    """
    backend.load_sharded(state, found.folder)
    scaler: dict[str, Any] = json.loads((found.folder / layout.SCALER).read_text())
    return scaler


def restore_rng(found: Found, backend: Backend, world: World, seed: int) -> str:
    """Restore this rank's random state as the very last thing before training; says what was not as before.

    A rank that did not exist when the checkpoint was written gets a state of its own, made from `seed`, the step and
    the rank, so that it repeats neither another rank's draws nor those of the run's beginning.
    """
    before, step = found.manifest.world_size, found.manifest.step
    if world.rank < before:
        load_rng(backend, found.folder / layout.rng_name(world.rank, before))
    else:
        derived = hashlib.sha256(f"{seed} {step} {world.rank}".encode()).digest()
        seed_everything(int.from_bytes(derived[:7], "big"))
    if world.world_size == before:
        return ""
    said = f"{before} -> {world.world_size} processes"
    if world.world_size == before + 1:
        said += f", rank {before} draws from a new seed"
    elif world.world_size > before:
        said += f", ranks {before} to {world.world_size - 1} draw from new seeds"
    return said


def _share_of_problems(path: Path, manifest: Manifest, world: World) -> list[str]:
    """Every rank checks its share of the files, so that a large checkpoint is read once in all."""
    names = sorted(manifest.files)
    return manifest.problems(path, names[world.rank :: world.world_size])


def _raise_together(world: World, path: Path, problems: list[str]) -> None:
    if world.any(bool(problems)):
        raise CheckpointError(
            f"{path} is damaged.",
            why="; ".join(problems) or "another rank found a damaged file",
            fix="use an older checkpoint: `vla checkpoint inspect` lists them",
        )
