"""NPUs, driver and CANN found from files alone: no driver call, no context, no torch_npu."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Where device nodes and driver files are looked for; the simulated CANN and tests put a tree of their own here.
ROOT = Path(os.environ.get("CANN_SIM_ROOT", "/"))
MASK: Final = "ASCEND_RT_VISIBLE_DEVICES"
#: Nodes that every process needs besides those of the devices.
CONTROL_NODES: Final = ("davinci_manager", "devmm_svm", "hisi_hdc")
#: Folders that the driver installs its libraries to; system-wide folders come from the linker's configuration.
_DRIVER_FOLDERS: Final = (
    "usr/local/Ascend/driver/lib64",
    "usr/local/Ascend/driver/lib64/driver",
    "usr/local/Ascend/driver/lib64/common",
)
_CANN_FOLDERS: Final = ("usr/local/Ascend/ascend-toolkit/latest", "usr/local/Ascend/cann", "usr/local/Ascend/latest")


def devices() -> list[int]:
    """Numbers of the device nodes, ascending; inside a container these may start anywhere."""
    names = (re.fullmatch(r"davinci(\d+)", path.name) for path in (ROOT / "dev").glob("davinci*"))
    return sorted(int(found[1]) for found in names if found)


def missing_control_nodes() -> list[str]:
    return [f"/dev/{name}" for name in CONTROL_NODES if not (ROOT / "dev" / name).exists()]


def driver_version() -> str:
    return _field(ROOT / "usr/local/Ascend/driver/version.info", "Version")


def cann_home(env: Mapping[str, str]) -> Path | None:
    """The CANN installation that `env` names."""
    home = env.get("ASCEND_HOME_PATH", "")
    return Path(home) if home else None


def cann_installed() -> Path | None:
    """A CANN installation in the usual places, sourced or not."""
    return next((ROOT / folder for folder in _CANN_FOLDERS if (ROOT / folder).is_dir()), None)


def cann_version(home: Path) -> str:
    for pattern in ("ascend_*_install.info", "*/ascend_*_install.info"):
        for info in sorted(home.glob(pattern)):
            if version := _field(info, "version"):
                return version
    return _field(home / "version.cfg", "version")


def find_library(name: str, env: Mapping[str, str]) -> Path | None:
    """Where the dynamic linker will find `name`, as far as files tell."""
    folders = [Path(folder) for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [ROOT / folder for folder in _DRIVER_FOLDERS] if name == "libascend_hal.so" else []
    for listing in sorted((ROOT / "etc/ld.so.conf.d").glob("*.conf")):
        lines = (line.strip() for line in listing.read_text(encoding="utf-8", errors="replace").splitlines())
        folders += [ROOT / line.lstrip("/") for line in lines if line.startswith("/")]
    folders += [ROOT / folder for folder in ("usr/lib64", "usr/lib", "lib64", "usr/local/lib")]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


@dataclass(frozen=True)
class Mask:
    """What the runtime makes of `ASCEND_RT_VISIBLE_DEVICES`.

    Attributes:
        count: devices it will show.
        problem: why that is not what was written, "" if it is.
        remedy: a value that is.
    """

    count: int
    problem: str = ""
    remedy: str = ""


def visible(mask: str | None, count: int) -> Mask:
    """Read the mask as the runtime does, but say aloud what it does in silence.

    The runtime stops at the first character that is neither digit nor comma and at the first index that does not
    exist, and shows nothing at all unless the indices ascend. Indices count the devices that are there from 0, whatever
    their nodes are called.
    """
    if mask is None:
        return Mask(count)
    if mask == "":
        return Mask(0, f"{MASK} is empty, which hides every NPU", f"unset {MASK}")
    written = [entry.strip() for entry in mask.split(",")]
    wanted = sorted({int(entry) for entry in written if entry.isdigit() and int(entry) < count})
    remedy = f"{MASK}={','.join(map(str, wanted))}" if wanted else f"unset {MASK}"
    odd = re.search(r"[^0-9,]", mask)
    if odd or "" in written:
        where = f"at {odd[0]!r}" if odd else "at the empty entry"
        return Mask(0, f"{MASK}={mask!r}: the runtime stops reading {where}; only digits and commas count", remedy)
    indices = [int(entry) for entry in written]
    absent = [index for index in indices if index >= count]
    if absent:
        return Mask(
            0,
            f"{MASK}={mask}: there is no device {absent[0]}, {count} are there and count from 0; "
            "the runtime would drop it and all after it in silence",
            remedy,
        )
    if indices != sorted(set(indices)):
        return Mask(0, f"{MASK}={mask}: the runtime shows no device unless the indices ascend, each once", remedy)
    return Mask(len(indices))


def _field(path: Path, name: str) -> str:
    """The value of `name=value` in a small text file, "" if there is none."""
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = re.search(rf"^\s*{name}\s*=\s*\[?([^\]\s:]+)", text, re.MULTILINE | re.IGNORECASE)
    return found[1] if found else ""
