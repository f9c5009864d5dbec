"""Facts about this machine, read once, so that checks are functions of them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = "#include <cmath>\nint main() { return static_cast<int>(std::sqrt(4.0)) - 2; }\n"


@dataclass(frozen=True)
class Readings:
    """What was found; sizes in bytes.

    Attributes:
        shared_memory: (total, free) of /dev/shm, `None` if there is none.
        disk_free: where runs are written.
        compiler: path of a C++ compiler, "" if there is none.
        compiler_error: why it compiles nothing, "" if it does.
        python_header: whether Python.h is there.
        ninja: whether the build tool of torch's extensions is there.
        stale_locks: lock files in the cache of compiled extensions that are older than an hour.
        localhost: whether the name resolves.
        taken_port: the value of MASTER_PORT if it is in the environment and in use, else "".
    """

    shared_memory: tuple[int, int] | None
    disk_free: int
    compiler: str
    compiler_error: str
    python_header: bool
    ninja: bool
    stale_locks: tuple[str, ...]
    localhost: bool
    taken_port: str


def read(env: Mapping[str, str], run_root: Path) -> Readings:
    """Look at this machine; `run_root` need not exist yet."""
    compiler = next((path for name in _compilers(env) if (path := shutil.which(name, path=env.get("PATH")))), "")
    return Readings(
        shared_memory=_space(Path("/dev/shm")),
        disk_free=shutil.disk_usage(_existing(run_root)).free,
        compiler=compiler,
        compiler_error=_compiles(compiler) if compiler else "",
        python_header=Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
        ninja=shutil.which("ninja", path=env.get("PATH")) is not None,
        stale_locks=tuple(_stale_locks(env)),
        localhost=_resolves("localhost"),
        taken_port=_taken(env.get("MASTER_PORT", "")),
    )


def _compilers(env: Mapping[str, str]) -> list[str]:
    return [name for name in (env.get("CXX", ""), "c++", "g++", "clang++") if name]


def _compiles(compiler: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "check.cpp")
        source.write_text(_PROGRAM)
        try:
            done = subprocess.run(
                [compiler, "-c", str(source), "-o", str(source.with_suffix(".o"))],
                capture_output=True,
                text=True,
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it ends with an error"])[0]


def _space(folder: Path) -> tuple[int, int] | None:
    if not folder.is_dir():
        return None
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free


def _existing(path: Path) -> Path:
    path = path.expanduser().absolute()
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _stale_locks(env: Mapping[str, str]) -> list[str]:
    folder = Path(env.get("TORCH_EXTENSIONS_DIR") or Path("~/.cache/torch_extensions").expanduser())
    try:
        found = [path for path in folder.glob("**/lock") if time.time() - path.stat().st_mtime > 3600]
    except OSError:
        return []
    return sorted(map(str, found))


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _taken(port: str) -> str:
    if not port.isdigit() or not 0 < int(port) < 65536:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(port)))
        except OSError:
            return port
    return ""
