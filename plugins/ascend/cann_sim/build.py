"""Builds the simulated CANN with the system's compiler, once per release of torch and torch_npu.

What comes out looks like an installed CANN toolkit (`lib64/libascendcl.so`, `lib64/libhccl.so`, `opp/`, `bin/npu-smi`
...) with the operator bridge for torch beside it. It is kept in the user's cache directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from packaging.version import Version

SOURCES = Path(__file__).with_name("src")
ASCENDCL = ("machine.c", "faults.c", "runtime.c", "streams.c", "memory.c", "single_op.c", "stubs.c")
# The first includes dispatch_compat.h, which must come before any other header of torch.
BRIDGE = ("bridge.cpp", "aliases.cpp", "rules.cpp")
HCCL = ("hccl_comm.c", "hccl_ops.c", "hccl_reduce.c", "hccl_p2p.c")
# Libraries that torch_npu links to or loads by name without using a function of them here.
EMPTY = (
    "acl_op_compiler", "acl_tdt_channel", "ascend_hal", "ge_runner", "graph", "ms_tools_ext", "msprofiler", "mspti",
    "opapi",
)  # fmt: skip
# Names of AscendCL functions in torch_npu's library. `aclnn...` are operators: they must be absent, so that
# torch_npu says which one is missing.
_RUNTIME_NAME = re.compile(rb"\0((?:acl(?!nn)[a-zA-Z]\w+|rt[A-Z]\w+|Msprof\w+))(?=\0)")
_DEFINED = re.compile(r"^(?:DOES_NOTHING\((\w+)\)|[\w ]+\*?\b(\w+)\([^;{]*\{)", re.MULTILINE)


class BuildError(RuntimeError):
    """The simulated CANN cannot be built here; the message is one line that says what is missing."""


def toolkit(verbose: bool = True) -> Path:
    """The built toolkit for the installed torch and torch_npu; builds it when it isn't there yet (about a minute).

    Raises:
        BuildError: no compiler, no torch_npu, or the compiler failed.
    """
    key = "-".join((f"torch{_version('torch')}", f"npu{_version('torch_npu')}", platform.machine(), _source_hash()))
    place = cache_directory() / key
    if (place / "complete").exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / "complete").exists():
            return place
        if verbose:
            print(f"simulated CANN: building for {key} into {place.parent} (once, about a minute)", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            _build(Path(work))
            shutil.rmtree(place, ignore_errors=True)
            Path(work, "toolkit").rename(place)
    return place


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vla-backend" / "cann_sim"


def bridge(place: Path) -> Path:
    """The operator bridge of a built toolkit."""
    return place / "libcann_sim_bridge.so"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise BuildError(
            f"simulated CANN: {distribution} is not installed; pip install torch==X and torch_npu==X"
        ) from None


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in (*sorted(SOURCES.iterdir()), Path(__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)  # does not import a top-level package
    if spec is None or spec.origin is None:
        raise BuildError(f"simulated CANN: {package} is not installed")
    return Path(spec.origin).parent


def _build(work: Path) -> None:
    named = {name: os.environ.get(variable) or shutil.which(name) for name, variable in (("gcc", "CC"), ("g++", "CXX"))}
    compilers = {name: path for name, path in named.items() if path}
    if missing := [name for name in named if name not in compilers]:
        raise BuildError(f"simulated CANN: no compiler ({', '.join(missing)}); install one, e.g. apt-get install g++")
    place = work / "toolkit"
    libraries = place / "lib64"
    libraries.mkdir(parents=True)
    npu_library = _folder_of("torch_npu") / "lib" / "libtorch_npu.so"
    (work / "refused.inc").write_text("".join(f"REFUSED({name})\n" for name in _refused(npu_library)))
    c = [compilers["gcc"], "-std=gnu11", "-O2", "-fPIC", "-shared", "-w", f"-I{work}", f"-L{libraries}"]

    def library(name: str, sources: Iterable[str], *link: str) -> None:
        files = [str(SOURCES / source) for source in sources] or ["-x", "c", "/dev/null"]
        target = libraries / f"lib{name}.so"
        _run([*c, f"-Wl,-soname,{target.name}", "-o", str(target), *files, "-Wl,--no-as-needed", *link])

    library("ascendcl", ASCENDCL, "-lpthread")
    library("hccl", HCCL, "-lascendcl")
    for name in EMPTY:
        library(name, (), "-lascendcl")
    _build_bridge(compilers["g++"], bridge(place), libraries)
    _dress(place)
    (place / "complete").touch()


def _build_bridge(compiler: str, target: Path, libraries: Path) -> None:
    torch = _folder_of("torch")
    standard = "c++20" if Version(_version("torch")) >= Version("2.11") else "c++17"
    unity = target.with_suffix(".cpp")  # one unit: torch's headers are read once
    unity.write_text("".join(f'#include "{SOURCES / name}"\n' for name in BRIDGE))
    includes = [f"-I{SOURCES}", f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    link = [f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", f"-L{libraries}", "-lascendcl"]
    command = [
        compiler,
        f"-std={standard}",
        "-O2",
        "-fPIC",
        "-shared",
        "-w",
        *includes,
        "-o",
        str(target),
        str(unity),
        *link,
    ]
    _run([part for part in command if part])
    unity.unlink()


def _refused(npu_library: Path) -> list[str]:
    """AscendCL functions that this torch_npu names and that the sources do not define."""
    named = {name.decode() for name in _RUNTIME_NAME.findall(npu_library.read_bytes())}
    for source in ASCENDCL:
        text = (SOURCES / source).read_text()
        named -= {name for pair in _DEFINED.findall(text) for name in pair}
    return sorted(named)


def _dress(place: Path) -> None:
    """The files of a CANN toolkit that programs look at."""
    for folder in ("opp", "runtime", "compiler", "bin"):
        (place / folder).mkdir()
    (place / "version.cfg").write_text("version=8.5.0-simulated\n")
    smi = place / "bin" / "npu-smi"
    smi.write_text('#!/bin/sh\nexec "${CANN_SIM_PYTHON:-python3}" -m vla_backend_ascend.cann_sim.npu_smi "$@"\n')
    smi.chmod(0o755)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"simulated CANN: the compiler failed: {' '.join(command)}\n{done.stderr[-4000:]}")
