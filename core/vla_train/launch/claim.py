"""One launcher per run folder: two that write into one would mix their checkpoints and metrics."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vla_backend import BackendError

FILE: Final = ".running"
#: What a file system says that has no locks, such as some network mounts.
_NO_LOCKS: Final = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


@contextlib.contextmanager
def claimed(run: Path) -> Iterator[str]:
    """Hold `run` until the block ends; the system lets it go when this process dies in whatever way.

    Yields:
        "", or why the folder could not be locked, for a warning.

    Raises:
        BackendError: another launcher holds it; names its machine and process.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield f"this system has no file locks: nothing stops a second run in {run}"
        return
    with (run / FILE).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise BackendError(
                f"Another `vla train` is running in {run}: {file.read().strip() or 'not known which'}.",
                why="two runs in one folder would mix their checkpoints and metrics",
                fix="wait for it, stop it (SIGTERM saves first), or give this run another name with run.id",
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            yield f"{run} has no locks ({error.strerror}): nothing stops a second run of the same run.id"
            return
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield ""
        file.truncate(0)
