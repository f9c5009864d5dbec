"""Starts the ranks of one machine through accelerate's launcher; run as `python -m vla_train.launch.agent`.

Usage: python -m vla_train.launch.agent ACCELERATE_CONFIG MODULE [ARGUMENTS ...]
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import warnings
from pathlib import Path

from vla_train.launch.failure import (
    DEBUG_ENV,
    FOLDER_ENV,
    INTERRUPTED,
    Failure,
    ended_by,
    ended_silently,
    ended_survivors,
    follow_parent,
    write_record,
)


def main(arguments: list[str]) -> int:
    """Answers the exit code of the rank that failed first, or 0."""
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if not os.environ.get(DEBUG_ENV):
        # Both report a failed rank in their own words, after the rank's; the launcher shows the rank's, once.
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", module="torch.distributed")
    follow_parent()
    config, module, *rest = arguments
    parsed = launch_command_parser().parse_args(["--config_file", config, "--module", module, *rest])
    # The agent binds a free port itself; asking for a free port first and binding it later lets two runs collide.
    parsed.standalone = True
    parsed.main_process_port = 0
    try:
        launch_command(parsed)
    except ChildFailedError as error:
        return _report(error)
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _report(error: object) -> int:
    """Record a rank that could not do so itself; answers the code of the first failure."""
    failures = error.failures  # type: ignore[attr-defined]
    if folder := os.environ.get(FOLDER_ENV):
        victims = ended_survivors(Path(folder))
        # SIGTERM is what the agent itself sends to the survivors.
        cause = {
            rank: failure
            for rank, failure in failures.items()
            if failure.exitcode != -signal.SIGTERM
            and failure.pid not in victims
            and not Path(folder, f"rank_{rank}.json").exists()
        }
        if cause:
            rank, failure = min(cause.items(), key=lambda item: (item[1].timestamp, item[0]))
            record = _record(rank, failure.pid, failure.exitcode, Path(folder))
            write_record(Path(folder, "abrupt.json"), record)
            return record.code
    first = min(failures.values(), key=lambda failure: failure.timestamp)
    return int(first.exitcode) if first.exitcode >= 0 else 128 - int(first.exitcode)


def _record(rank: int, pid: int, code: int, folder: Path) -> Failure:
    if code < 0:
        text = ended_by(rank, pid, signal.Signals(-code).name, folder)
        return Failure(rank, time.time(), 128 - code, text, abrupt=True)
    return Failure(rank, time.time(), code, ended_silently(rank, pid, code, folder), abrupt=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
