"""The script of `vla setup ascend --print`, written from the table of version sets."""

from __future__ import annotations

import platform
from typing import Final

from vla_backend.errors import BackendError
from vla_backend_ascend.versions import Table, VersionSet, table

#: pip's index of torch builds without CUDA, which the user names; on aarch64 the usual index has them.
_CPU_INDEX: Final = "${TORCH_CPU_INDEX:?set it to the index of CPU builds that the selector on pytorch.org prints}"
_ARCHITECTURES: Final = ("x86_64", "aarch64")
_TRAIN: Final = "vla train --backend ascend --zero 3 --processes 8 --config examples/robotwin_14dim.yaml"


class UnknownSet(BackendError):
    """The table has no such version set, or no such machine."""


def script(name: str = "", machine: str = "") -> str:
    """Commands from a bare host to a training run.

    Args:
        name: a torch_npu version of the table, or a torch version, whose newest release is taken; "" for the set that
            training jobs have run with.
        machine: "x86_64" or "aarch64"; "" for this one.

    Raises:
        UnknownSet: the message lists those that are known.
    """
    known = table()
    chosen = find(known, name)
    machine = machine or {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine())
    if machine not in _ARCHITECTURES:
        raise UnknownSet(f"There are no Ascend wheels for {machine}.", fix=f"use {' or '.join(_ARCHITECTURES)}")
    return "\n".join(
        [*_head(known, chosen, machine), *_host(chosen, machine), *_python(known, chosen, machine), *_run()]
    )


def find(known: Table, name: str) -> VersionSet:
    """The set of that name.

    Raises:
        UnknownSet: there is none.
    """
    wanted = name or known.proven
    found = known.find(wanted) or next((entry for entry in known.sets if entry.torch == wanted and entry.cann), None)
    if found is None:
        sets = ", ".join(entry.torch_npu for entry in known.sets)
        raise UnknownSet(f"There is no version set '{name}'.", why=f"known on {known.read}: {sets}", fix="name one")
    return found


def cann(chosen: VersionSet) -> str:
    """The CANN to install: the one jobs have run with, else the newest the set was made for, "" if none is known."""
    return dict(chosen.run_with).get("cann") or (chosen.cann[-1] if chosen.cann else "")


def python(chosen: VersionSet) -> str:
    """The Python to install: the one jobs have run with, else 3.11, which all sets have wheels for."""
    return dict(chosen.run_with).get("python") or "3.11"


def torch_requirement(chosen: VersionSet, machine: str) -> str:
    """torch as pip is to be asked for it: on x86-64 the build without CUDA has a local version."""
    return f"torch=={chosen.torch}+cpu" if machine == "x86_64" else f"torch=={chosen.torch}"


def _head(known: Table, chosen: VersionSet, machine: str) -> list[str]:
    release = cann(chosen) or "unknown"
    proven = "training jobs have run on it" if chosen.torch_npu == known.proven else "by the release notes"
    return [
        "#!/usr/bin/env bash",
        f"# From a bare {machine} host with Ascend NPUs to a training run.",
        f"# Version set: Python {python(chosen)}, CANN {release}, torch {chosen.torch}, torch_npu {chosen.torch_npu}"
        f" ({proven}; table of {known.read}).",
        "# Everything comes as a wheel but DeepSpeed, which is pure Python unless its operators are asked for.",
        "set -euo pipefail",
        "",
    ]


def _host(chosen: VersionSet, machine: str) -> list[str]:
    release, driver = cann(chosen), f" {chosen.driver} or later" if chosen.driver else ""
    lines = [
        f"# 1. Driver{driver} and firmware, as root, once per host (packages from hiascend.com, for your card):",
        "#      ./Ascend-hdk-<card>-npu-driver_<version>_linux-" + machine + ".run --full --install-for-all",
        "#      ./Ascend-hdk-<card>-npu-firmware_<version>.run --full && reboot",
        "npu-smi info",
        "",
    ]
    if not release:
        return [
            *lines,
            f"# 2. CANN: which release torch_npu {chosen.torch_npu} was made for was not published when the table was",
            "#    read. Take the one that its release notes name: toolkit and the operator package (kernels or ops).",
            'source "${ASCEND_TOOLKIT:-/usr/local/Ascend/ascend-toolkit}/set_env.sh"',
            "",
        ]
    return [
        *lines,
        f"# 2. CANN {release}: toolkit, and the operator package (kernels or ops) of your card:",
        f"#      ./Ascend-cann-toolkit_{release}_linux-{machine}.run --install --quiet",
        f"#      ./Ascend-cann-<kernels or ops>-<card>_{release}_linux-{machine}.run --install --quiet",
        'source "${ASCEND_TOOLKIT:-/usr/local/Ascend/ascend-toolkit}/set_env.sh"',
        "",
    ]


def _python(known: Table, chosen: VersionSet, machine: str) -> list[str]:
    index = f' --extra-index-url "{_CPU_INDEX}"' if machine == "x86_64" else ""
    decoder = (
        [] if machine == "x86_64" else ["# Videos are decoded by PyAV, which is a wheel; decord has none for aarch64."]
    )
    return [
        "# 3. Python packages, in an environment of their own. torch first and alone; torch_npu must equal it to the",
        "#    patch version.",
        f"python{python(chosen)} -m venv ascend && source ascend/bin/activate",
        "pip install --upgrade pip",
        f'pip install --only-binary torch,torch_npu{index} "{torch_requirement(chosen, machine)}" '
        f'"torch_npu=={chosen.torch_npu}" {" ".join(known.undeclared)}',
        # torch is pinned, so that nothing exchanges it.
        f'echo "{torch_requirement(chosen, machine)}" > pinned.txt',
        f"pip install --only-binary av,pyarrow,numpy,pyzmq{index} -c pinned.txt -e .   # in the sources of vla-backend",
        *decoder,
        "",
    ]


def _run() -> list[str]:
    return [
        "# 4. Look before training: versions, libraries, devices, a collective, a small step, memory.",
        "vla doctor --backend ascend --processes 8",
        "",
        "# 5. Train; data.root is the folder of the datasets.",
        "vla estimate --backend ascend --zero 3 --memory 64 --config examples/robotwin_14dim.yaml",
        f"{_TRAIN} data.root=/data/robotwin",
        "",
        "# Speed alone: samples per second per card after warm-up, no checkpoints.",
        f"{_TRAIN} data.root=/data/robotwin --performance",
        "",
    ]
