"""Whether driver, CANN, torch and torch_npu fit together, from files and metadata alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from vla_backend.installed import distribution_version, package_folder, torch_build
from vla_backend_ascend import hardware


class Problem(NamedTuple):
    """One thing that keeps the backend from running, and its cure."""

    reason: str
    remedy: str


def problems(env: Mapping[str, str]) -> list[Problem]:
    """Everything that is wrong beneath Python and in it, the lowest layer first."""
    return [*driver_problems(env), *cann_problems(env), *package_problems()]


def driver_problems(env: Mapping[str, str]) -> Iterator[Problem]:
    if missing := hardware.missing_control_nodes():
        flags = " ".join(f"--device {node}" for node in missing)
        yield Problem(f"{', '.join(missing)} is missing", f"start the container with {flags}, or its Ascend runtime")
    if hardware.find_library("libascend_hal.so", env) is None:
        yield Problem(
            "libascend_hal.so of the driver is nowhere",
            "mount the host's /usr/local/Ascend/driver into the container, or install the driver",
        )


def cann_problems(env: Mapping[str, str]) -> Iterator[Problem]:
    home, installed = hardware.cann_home(env), hardware.cann_installed()
    script = f"source {_set_env(home or installed)}"
    if home is None:
        if installed is None:
            yield Problem("CANN is not installed (no ASCEND_HOME_PATH)", "install CANN and source its set_env.sh")
        else:
            yield Problem(f"CANN is at {installed}, but its environment is not set", script)
        return
    if not home.is_dir():
        yield Problem(f"ASCEND_HOME_PATH={home} does not exist", "source the set_env.sh of the CANN you installed")
        return
    operators = env.get("ASCEND_OPP_PATH", "")
    if not operators or not Path(operators).is_dir():
        yield Problem("ASCEND_OPP_PATH names no folder: the operators of CANN are missing", script)
    for name in ("libascendcl.so", "libhccl.so"):
        if hardware.find_library(name, env) is None:
            yield Problem(f"{name} of CANN is not on LD_LIBRARY_PATH", script)


def _set_env(home: Path | None) -> str:
    """The script that sets CANN's environment: beside its versions, or within the folder itself."""
    if home is None:
        return "set_env.sh"
    return str(next((p for p in (home.parent / "set_env.sh", home / "set_env.sh") if p.exists()), home / "set_env.sh"))


def package_problems() -> Iterator[Problem]:
    torch, npu = torch_build(), distribution_version("torch_npu")
    if torch is None:
        yield Problem("torch is not installed", "install a CPU build of torch and the torch_npu of the same version")
        return
    wanted = f'pip install "torch_npu=={torch.release}.*"'
    if package_folder("torch_npu") is None or not npu:
        yield Problem(f"torch_npu is not installed beside torch {torch.version}", wanted)
    elif release(npu) != release(torch.version):
        yield Problem(
            f"torch_npu {npu} is built for torch {release(npu)}, installed is torch {torch.version}; "
            "they must agree to the patch version",
            wanted,
        )
    if torch.cuda and (hardware.ROOT / "dev/nvidia0").exists():
        yield Problem(
            f"torch {torch.version} would use this machine's NVIDIA GPU, and torch_npu refuses to share torch with it",
            "install the CPU build of the same torch version",
        )


def release(version: str) -> str:
    """The torch version that a version of torch or torch_npu stands for: "2.7.1.post2" and "2.7.1+cpu" are "2.7.1"."""
    found = re.match(r"\d+\.\d+\.\d+", version)
    return found[0] if found else version
