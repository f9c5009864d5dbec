"""Two processes: how a group ends, in peace and when a rank does not come."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from vla_train.conformance.checks import Failure, check
from vla_train.conformance.samples import SHORT
from vla_train.conformance.subject import Subject

#: Seconds in which the time limit of collectives must have struck.
_STRUCK: Final = 40.0


@check("ranks", apart=True, seconds=120.0)
def clean_teardown(subject: Subject) -> None:
    """The group can be left, and both processes end by themselves."""
    import torch.distributed as dist

    from vla_train.train.world import leave

    subject.world.barrier()
    leave()
    if dist.is_initialized():
        raise Failure("The process group is still there after destroy_process_group.")
    children = _children()
    if children:
        raise Failure(
            "Leaving the process group leaves processes behind.",
            why=f"children: {', '.join(children)}",
            fix="end helpers of the library when the group is destroyed",
        )


@check("ranks", apart=True, may_end_process=True, seconds=90.0, collective_seconds=SHORT)
def timeout_strikes(subject: Subject) -> str:
    """A collective whose peer does not come ends in time, by an error or with the process."""
    world = subject.world
    if world.is_main:
        (subject.folder / "peer").write_text(str(os.getpid()))
    world.barrier()
    given_up = subject.folder / "given-up"
    if world.rank:
        # Leaving would end the peer's collective too, and would prove nothing.
        _stay_away(given_up, int(subject.folder.joinpath("peer").read_text()))
        return "stayed away"
    started = time.monotonic()
    try:
        world.barrier()
    except Exception as error:
        seconds = time.monotonic() - started
        if seconds > _STRUCK:
            raise Failure(
                f"A collective without its peer ends after {seconds:.0f} s.",
                why=f"the time limit asked for was {SHORT} s",
                fix="derive the library's own time limits from parallel.dist_timeout in env_defaults",
            ) from error
        return f"{type(error).__name__} after {seconds:.1f} s of {SHORT} s"
    finally:
        given_up.touch()
    raise Failure("A collective succeeds without its peer.", why="rank 1 did not take part")


def _stay_away(given_up: Path, peer: int) -> None:
    """Until the peer has given up, or its process has ended."""
    while not given_up.exists():
        time.sleep(0.1)
        try:
            os.kill(peer, 0)
        except ProcessLookupError:
            return


def _children() -> list[str]:
    """Process id and command of each, without torch's own compiler, whose workers live as long as the process."""
    import psutil

    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and "torch/_inductor/" not in command:
                found.append(f"{child.pid} ({command})")
    return found
