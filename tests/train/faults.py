"""Ranks for fault tests, started in a fraction of a second: children of a server that has loaded everything already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.train import jobs
from vla_train.checkpoint import layout
from vla_train.launch.failure import FOLDER_ENV, guard
from vla_train.launch.runs import complete_checkpoints

STEPS = 24
NOBODY = 65534
SAVES_EVERY_STEP = {
    "train__max_steps": STEPS,
    "train__save_interval": 1,
    "train__keep_checkpoints": 2,
    "run__loggers": [],
}

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.train.jobs", "deepspeed", "torch._dynamo"])
# The server imports DeepSpeed, which would look for devices.
os.environ.setdefault("DS_ACCELERATOR", "cpu")


class Job:
    """One toy run on one rank or several; what the ranks say goes to `folder/rank<r>.log`.

    Args:
        file_limit: bytes beyond which no file of rank `limited` may grow; 0 for none.
        unprivileged: root gives up its rights while it saves.
        how: arguments of `jobs.train`.
        launch: takes what the ranks tell their launcher.
        changes: of the configuration.
    """

    def __init__(
        self,
        folder: Path,
        world_size: int = 1,
        *,
        file_limit: int = 0,
        limited: int = 0,
        unprivileged: bool = False,
        how: dict[str, Any] | None = None,
        launch: Path | None = None,
        **changes,
    ) -> None:
        self.folder, self.world_size = folder, world_size
        self.checkpoints = folder / "run" / layout.FOLDER
        group = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        if launch:
            group[FOLDER_ENV] = str(launch)
        settings = SAVES_EVERY_STEP | {"data__batch_size": 4 // world_size} | changes
        self.ranks: list[BaseProcess] = []
        for rank in range(world_size):
            variables = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            made = _context.Process(
                target=_rank,
                args=(folder, rank, variables, settings, file_limit * (rank == limited), unprivileged, how or {}),
            )
            made.start()
            self.ranks.append(made)

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.join()

    def wait(self, timeout: float = 120) -> list[int | None]:
        """Exit codes of the ranks."""
        try:
            until = time.monotonic() + timeout
            for rank in self.ranks:
                rank.join(max(0.0, until - time.monotonic()))
            return [rank.exitcode for rank in self.ranks]
        finally:
            self.kill()

    def newest(self) -> int:
        """Step of the newest complete checkpoint, 0 without one."""
        there = complete_checkpoints(self.folder / "run")
        return int(there[-1].name.partition("_")[2]) if there else 0

    def drafts(self) -> list[Path]:
        return list(self.checkpoints.glob(".step_*.partial")) if self.checkpoints.is_dir() else []

    def log(self, rank: int = 0) -> str:
        return (self.folder / f"rank{rank}.log").read_text()


@contextlib.contextmanager
def started(folder: Path, world_size: int = 1, **more: Any) -> Iterator[Job]:
    """A job that does not outlive the block."""
    job = Job(folder, world_size, **more)
    try:
        yield job
    finally:
        job.kill()


def _rank(
    folder: Path,
    rank: int,
    variables: dict[str, str],
    settings: dict[str, Any],
    file_limit: int,
    unprivileged: bool,
    how: dict[str, Any],
) -> None:
    import torch

    from vla_train.train import loop

    os.environ.update(variables, DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    loop.save = _limited(loop.save, file_limit, unprivileged)
    # As the launcher would: errors end up in the log, and the exit code is that of `guard`.
    sys.exit(guard(lambda: jobs.train(folder, rank, settings, {"dropout": 0.3}, noise=True, **how) and 0))


def _limited(save: Any, limit: int, unprivileged: bool) -> Any:
    """`save` during which no file may grow beyond the limit (writes fail in the middle, as on a full disk), or during
    which root is somebody else."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before, user = resource.getrlimit(resource.RLIMIT_FSIZE), os.geteuid()
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        if unprivileged and user == 0:
            os.seteuid(NOBODY)
        try:
            return save(*args, **kwargs)
        finally:
            os.seteuid(user)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return call


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
