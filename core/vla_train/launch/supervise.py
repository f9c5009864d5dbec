"""Starting the planned processes and staying with them until the last has ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from vla_train.launch.failure import FOLDER_ENV, end_survivors, ended_by, recorded, worker_pids
from vla_train.launch.plan import Plan

#: Seconds that the other ranks have to report an error of their own after one rank failed.
GRACE: Final = 5.0
FORWARDED: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def supervise(plan: Plan, env: Mapping[str, str] | None = None) -> int:
    """Run the plan to its end and answer its exit code; the error of the rank that failed first is printed last.

    SIGINT, SIGTERM and SIGHUP are passed to the ranks, which finish their step and save; a second SIGINT ends them at
    once. The code is then 128 + the signal's number.

    When a rank fails, the others wait for it in their next collective. They are ended `GRACE` seconds later.
    """
    folder = Path(tempfile.mkdtemp(prefix="vla-launch-"))
    try:
        environment = plan.environment(os.environ if env is None else env) | {FOLDER_ENV: str(folder)}
        # A session of its own: Ctrl-C in a terminal reaches only this process, so every rank gets it exactly once.
        child = subprocess.Popen(plan.command(folder), env=environment, start_new_session=True)
        caught: list[int] = []
        with _handlers(lambda number: _forward(number, caught, child, folder)):
            code = _wait(child, folder)
        failures = recorded(folder)
        if caught:
            return 128 + caught[0]
        if code < 0:
            print(ended_by(0, child.pid, signal.Signals(-code).name, folder), file=sys.stderr)
            return 128 - code
        if failures:
            first = next((failure for failure in failures if failure.abrupt), failures[0])
            where = f"rank {first.rank}: " if plan.processes > 1 and not first.abrupt else ""
            print(f"{where}{first.text}", file=sys.stderr)
            return first.code
        if code:
            print(f"error: the run ended with exit code {code}; its messages are above.", file=sys.stderr)
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(child: subprocess.Popen[bytes], folder: Path) -> int:
    """The exit code of `child`; once a rank has failed, those that are left are ended."""
    while True:
        try:
            return child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            failures = recorded(folder)
        if failures and time.time() - failures[0].when > GRACE:
            # The child itself notices, and ends with the right code.
            end_survivors(folder, but=child.pid)


def _forward(number: int, caught: list[int], child: subprocess.Popen[bytes], folder: Path) -> None:
    again = number in caught and number == signal.SIGINT
    caught.append(number)
    pids = worker_pids(folder)
    # accelerate's agent would answer the signal by killing the ranks after 30 s; they may need longer to save.
    for pid in pids or [child.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    if again:
        for pid in [*pids, child.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)


@contextlib.contextmanager
def _handlers(forward: Callable[[int], None]) -> Any:
    def handle(number: int, frame: FrameType | None) -> None:
        forward(number)

    # `nohup` has SIGHUP ignored, and means it.
    wanted = [number for number in FORWARDED if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
