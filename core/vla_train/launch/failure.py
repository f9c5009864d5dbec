"""How a process tells the launcher why it ended, so that the cause is shown last and once.

A worker runs its main function through `guard`. Started by the launcher it leaves a record in the folder that the
variable `VLA_FAILURES` names; started by hand it prints.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from vla_backend import BackendError
from vla_backend.errors import TranslatedError
from vla_train.launch.missing import missing_package

FOLDER_ENV: Final = "VLA_FAILURES"
DEBUG_ENV: Final = "VLA_DEBUG"
INTERRUPTED: Final = 130
MISTAKE: Final = 2
_ENDED: Final = "ended"
_FULL: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "a limit on the size of files is reached (`ulimit -f`)",
    errno.EROFS: "the disk is read-only",
}


@dataclass(frozen=True)
class Failure:
    """Why one rank ended.

    Attributes:
        rank: its rank, -1 if it is not known.
        when: seconds since the epoch.
        code: its exit code.
        text: what to show: the message of a `BackendError`, after the traceback of the error that it translates;
            else the traceback.
        abrupt: whether it ended without a word of its own: what the others report is then a consequence.
    """

    rank: int
    when: float
    code: int
    text: str
    abrupt: bool = False


def guard(main: Callable[[], int | None]) -> int:
    """Run `main` and answer the exit code of the process: its own, 2 for a `BackendError`, 130 for Ctrl-C, else 1."""
    folder = os.environ.get(FOLDER_ENV)
    rank = int(os.environ.get("RANK", "0"))
    if folder:
        Path(folder, f"rank_{rank}.pid").write_text(str(os.getpid()))
        follow_parent()
    try:
        return main() or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit:
        raise
    except BaseException as error:
        return report(missing_package(error) or error)


def report(error: BaseException) -> int:
    """Record the end of this rank for the launcher, or print it; answers the exit code."""
    folder, rank = os.environ.get(FOLDER_ENV), int(os.environ.get("RANK", "0"))
    failure = Failure(rank, time.time(), MISTAKE if isinstance(error, BackendError) else 1, describe(error))
    try:
        if not folder:
            raise FileNotFoundError
        write_record(Path(folder, f"rank_{rank}.json"), failure)
    except OSError:  # started by hand, or the disk is full
        print(failure.text, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return failure.code


def describe(error: BaseException) -> str:
    """The message of a `BackendError`; the traceback of other errors, or of every error if `VLA_DEBUG` is set.

    A translated error shows both, its own message last.
    """
    if isinstance(error, BackendError) and not os.environ.get(DEBUG_ENV):
        original = error.__cause__ if isinstance(error, TranslatedError) else None
        before = "".join(traceback.format_exception(original)) + "\n" if original else ""
        return f"{before}error: {error}"
    return "".join(traceback.format_exception(error)).rstrip()


def write_record(path: Path, failure: Failure) -> None:
    """Write a record that the launcher, which looks all the time, sees whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(failure)))
    os.replace(draft, path)


def of_the_disk(error: BaseException, folder: Path | str) -> BackendError | None:
    """An error of a disk that takes no more as a message that names `folder`, where the run writes; else None."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return None
    return BackendError(
        f"{error.filename or folder} cannot be written: {_FULL[error.errno]}.",
        why=str(error),
        fix=f"make room, or put the run elsewhere (run.root). Checkpoints in {folder} are untouched; the same command "
        "continues from the newest",
    )


def of_a_file(error: OSError) -> BackendError:
    """An error about a file that is no part of a run, named; what was being done with it is in the traceback."""
    reason = _FULL.get(error.errno or 0) or (error.strerror or str(error)).lower()
    paths = " -> ".join(str(path) for path in (error.filename, error.filename2) if path is not None)
    fix = "make room, or name another place" if error.errno in _FULL else "correct the path or its permissions"
    return BackendError(f"{paths or 'a file'}: {reason}.", fix=f"{fix}; {DEBUG_ENV}=1 shows what was being done")


def recorded(folder: Path) -> list[Failure]:
    """The records in `folder`, the earliest first: what fails later is usually a consequence."""
    found = [Failure(**json.loads(path.read_text())) for path in folder.glob("*.json")]
    return sorted(found, key=lambda failure: failure.when)


def end_survivors(folder: Path, but: int) -> None:
    """Kill the ranks that are left of a failed launch, except process `but`; says in `folder` which were alive."""
    alive = set()
    for pid in worker_pids(folder):
        with contextlib.suppress(ProcessLookupError):
            if pid != but:
                os.kill(pid, 0)
                alive.add(pid)
    with contextlib.suppress(OSError):
        Path(folder, _ENDED).write_text(" ".join(map(str, alive | ended_survivors(folder))))
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def ended_survivors(folder: Path) -> set[int]:
    """The processes that `end_survivors` killed: victims of a failure, never its cause."""
    path = Path(folder, _ENDED)
    return {int(pid) for pid in path.read_text().split()} if path.is_file() else set()


def worker_pids(folder: Path) -> list[int]:
    """Processes that announced themselves in `folder`."""
    return [int(text) for path in sorted(folder.glob("rank_*.pid")) if (text := path.read_text())]


def ended_by(rank: int, pid: int, name: str, folder: Path | None = None) -> str:
    """What to say about a rank that a signal ended; `folder` is that of the launch."""
    hints = {
        "SIGKILL": "often the kernel, out of host memory: `dmesg | tail`, fewer data.num_workers, a smaller batch",
        "SIGSEGV": "a crash in compiled code; PYTHONFAULTHANDLER=1 shows where",
        "SIGBUS": "often a full /dev/shm: fewer data.num_workers, or a larger one",
        "SIGABRT": "compiled code gave up; its message is above",
    }
    hint = f"\n  fix: {hints[name]}" if name in hints else ""
    return f"error: rank {rank} (process {pid}) was ended by {name}{_place(folder, rank)}.{hint}"


def ended_silently(rank: int, pid: int, code: int, folder: Path | None = None) -> str:
    """What to say about a rank that ended with exit code `code` and reported no error."""
    return (
        f"error: rank {rank} (process {pid}) ended with exit code {code} and no error of its own{_place(folder, rank)}."
        "\n  fix: compiled code or a library has ended the process; its last words are above"
    )


def _place(folder: Path | None, rank: int) -> str:
    """Where a rank was, as its heartbeat left it."""
    try:
        path = Path(folder or "", f"rank_{rank}.place").read_text()
        place = json.loads(Path(path).read_text())
        samples = ", ".join(map(str, place["sample_ids"])) or "unknown"
        return f" in step {place['step']} ({place['phase']}; samples: {samples}; saved in {path})"
    except (OSError, ValueError, KeyError):
        return ""


def follow_parent() -> None:
    """End this process when its parent disappears: a killed launcher must not leave a job on the devices."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()
