"""Writing a checkpoint: every rank its share into a draft folder, then the manifest, then one rename."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vla_backend import Backend
from vla_backend.defaults.zero_files import OutOfStep
from vla_train.checkpoint import layout
from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.manifest import Entry, Manifest, describe, whole
from vla_train.checkpoint.rng import save_rng
from vla_train.checkpoint.state import TrainingState
from vla_train.train.world import World


def save(
    folder: Path,
    state: TrainingState,
    manifest: Manifest,
    *,
    scaler: Mapping[str, Any],
    position: Mapping[str, Any],
    backend: Backend,
    world: World,
    keep: int,
) -> Path:
    """Write the checkpoint of `manifest.step`; call it on every rank.

    Nothing is gathered. Until the rename at the end readers see the previous checkpoints only, so a process killed at
    any moment leaves them usable.

    Args:
        folder: of all checkpoints of the run.
        manifest: without its files.
        scaler: state of the loss scaler, JSON values.
        position: of the data, JSON values.
        keep: newest checkpoints to keep; 0 keeps all.

    Raises:
        CheckpointError: a rank could not write; earlier checkpoints are untouched.
    """
    final, draft = folder / layout.step_name(manifest.step), folder / layout.draft_name(manifest.step)
    with _all_or_none(world, draft):
        if world.is_main:
            layout.clear_drafts(folder)
            draft.mkdir(parents=True)
    with _all_or_none(world, draft):
        backend.save_sharded(state, draft)
        save_rng(backend, draft / layout.rng_name(world.rank, world.world_size))
        if world.is_main:
            layout.write_json(draft / layout.SCALER, dict(scaler))
            layout.write_json(draft / layout.POSITION, dict(position))
            if (folder.parent / layout.DECISIONS).is_file():
                shutil.copyfile(folder.parent / layout.DECISIONS, draft / layout.DECISIONS)
    with _all_or_none(world, draft):
        _describe_share(draft, world)
    with _all_or_none(world, draft):
        if world.is_main:
            replace(manifest, files=_collect(draft, world)).write(draft)
            replaced = draft.with_name(f"{draft.name}.replaced")
            if final.exists():  # a damaged one, or the same step saved again
                os.rename(final, replaced)
            os.rename(draft, final)
            shutil.rmtree(replaced, ignore_errors=True)
            layout.write_text(folder / layout.LATEST, final.name + "\n")
            layout.rotate(folder, keep, whole)
    return final


class _all_or_none:
    """Ranks leave this block together; if one failed, all raise and the draft is removed."""

    def __init__(self, world: World, draft: Path) -> None:
        self._world, self._draft = world, draft

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and not isinstance(error, Exception):
            return
        # A rank that is out of step ends at once, and the launcher ends the others.
        alone = isinstance(error, OutOfStep)
        if not alone and not self._world.any(error is not None):
            return
        if self._world.is_main and not alone:
            layout.clear_drafts(self._draft.parent)
        raise CheckpointError(
            f"The checkpoint {self._draft.name.strip('.').removesuffix('.partial')} was not written.",
            why=f"rank {self._world.rank}: {error}" if error else "another rank could not write its share",
            fix="free space or mend the folder; the checkpoints before it are untouched",
        ) from error


def _describe_share(draft: Path, world: World) -> None:
    """Checksum every world_size-th file; the files of all ranks are there by now."""
    names = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
    mine = [name for index, name in enumerate(names) if index % world.world_size == world.rank]
    described = {name: describe(draft / name, sync=True) for name in mine}
    lines = {name: {"size": entry.size, "sha256": entry.sha256} for name, entry in described.items()}
    _sums(draft, world.rank).write_text(json.dumps(lines))


def _collect(draft: Path, world: World) -> dict[str, Entry]:
    files: dict[str, Entry] = {}
    for rank in range(world.world_size):
        share = _sums(draft, rank)
        if not share.is_file() or not (draft / layout.rng_name(rank, world.world_size)).is_file():
            raise CheckpointError(
                f"Rank {rank} did not write into {draft}.",
                why="the ranks of different machines see different folders",
                fix="put run.root on a file system that all machines share",
            )
        files |= {name: Entry(**entry) for name, entry in json.loads(share.read_text()).items()}
        share.unlink()
    return files


def _sums(draft: Path, rank: int) -> Path:
    # Beside the draft, not in it: a rank may still be listing its files.
    return draft.with_name(f"{draft.name}.sums{rank}")
