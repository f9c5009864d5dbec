"""GPUs found from files alone: no driver call, no context, no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Where device nodes and driver files are looked for; tests put a tree of their own here.
ROOT = Path("/")
#: Oldest driver branch that runs programs built for a major release of CUDA.
OLDEST_DRIVER: Final = {11: 450, 12: 525, 13: 580}
#: Systems whose GPU has no numbered node: Windows' Linux subsystem, with its driver library, and Jetson boards.
_SINGLE: Final = (("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"), ("dev/nvhost-gpu", "dev"), ("dev/nvgpu/igpu0", "dev"))


@dataclass(frozen=True)
class Gpus:
    """GPUs in reach of this process before any mask.

    Attributes:
        count: how many.
        uuids: their identifiers "GPU-...", as far as the driver publishes them.
        driver: driver version, "" if unknown.
        evidence: the files that say so.
    """

    count: int
    uuids: tuple[str, ...] = ()
    driver: str = ""
    evidence: str = ""


def nvidia() -> Gpus:
    nodes = [path for path in (ROOT / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    driver = ""
    version = ROOT / "proc/driver/nvidia/version"
    if version.is_file():
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", version.read_text(encoding="utf-8", errors="replace"))
        driver = found[1] if found else ""
    uuids = []
    for information in sorted((ROOT / "proc/driver/nvidia/gpus").glob("*/information")):
        found = re.search(r"GPU UUID:\s*(GPU-\S+)", information.read_text(encoding="utf-8", errors="replace"))
        uuids += [found[1]] if found else []
    if not nodes:
        for node, companion in _SINGLE:
            if (ROOT / node).exists() and (ROOT / companion).exists():
                return Gpus(1, driver=driver, evidence=f"/{node}")
    evidence = f"{len(nodes)} x /dev/nvidia<n>" + (f", driver {driver}" if driver else "")
    return Gpus(len(nodes), tuple(uuids), driver, evidence)


def amd() -> Gpus:
    if not (ROOT / "dev/kfd").exists():
        return Gpus(0)
    count = 0
    for identifier in (ROOT / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"):
        # Processors are nodes too, with id 0.
        count += identifier.read_text(encoding="utf-8").strip() not in ("", "0")
    return Gpus(count, evidence=f"/dev/kfd with {count} GPUs")


def mask_name(env: Mapping[str, str], hip: bool) -> str:
    """The variable that limits the GPUs of this process."""
    return "HIP_VISIBLE_DEVICES" if hip and "HIP_VISIBLE_DEVICES" in env else "CUDA_VISIBLE_DEVICES"


def visible(mask: str | None, gpus: Gpus) -> tuple[int, str]:
    """How many GPUs the runtime will show under `mask`, and what it will drop in silence, "" if nothing.

    The runtime reads entries until the first it does not know ("-1" is the customary one), and shows nothing at all
    when one is named twice. Entries are indices, or prefixes of "GPU-..." identifiers; of "MIG-..." only one counts.
    """
    if mask is None:
        return gpus.count, ""
    entries = [entry.strip() for entry in mask.split(",")]
    seen: list[str] = []
    for position, entry in enumerate(entries):
        known = _resolve(entry, gpus)
        if known is None:
            rest = ",".join(entries[position:])
            meant = entry.startswith("-") or (entry == "" and len(entries) == 1)
            return min(
                len(seen), gpus.count
            ), "" if meant else f"'{rest}' is ignored, '{entry}' is not one of {gpus.count} GPUs"
        if known in seen:
            return 0, f"'{entry}' is named twice, then no GPU is visible"
        seen.append(known)
        if entry.startswith("MIG-"):
            dropped = ",".join(entries[position + 1 :])
            return 1, f"'{dropped}' is ignored, a process can use one MIG instance" if dropped else ""
    return min(len(seen), gpus.count), ""


def _resolve(entry: str, gpus: Gpus) -> str | None:
    """An identity for an entry of the mask, `None` if the runtime does not know it."""
    if entry.startswith("MIG-"):
        return entry
    if entry.startswith("GPU-"):
        if not gpus.uuids:
            return entry
        return _only([uuid for uuid in gpus.uuids if uuid.startswith(entry)])
    if re.fullmatch(r"\d+", entry) and int(entry) < gpus.count:
        return str(int(entry))
    return None


def _only(matches: Sequence[str]) -> str | None:
    return matches[0] if len(matches) == 1 else None


def too_old(driver: str, cuda: str) -> str:
    """Why `driver` does not run programs built for `cuda`, "" if it does or nothing is known."""
    needed = OLDEST_DRIVER.get(int(cuda.split(".")[0])) if cuda else None
    if not driver or needed is None or int(driver.split(".")[0]) >= needed:
        return ""
    return f"driver {driver} is older than {needed}, which CUDA {cuda} needs"
