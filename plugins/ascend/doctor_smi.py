"""What `npu-smi info` says about the NPUs: their health and the memory that is in use."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from vla_backend.health import Check
from vla_backend_ascend import hardware


class Chip(NamedTuple):
    """One NPU as `npu-smi info` shows it; memory in MB."""

    number: int
    name: str
    health: str
    used: int
    total: int


def smi_checks() -> Iterator[Check]:
    if shutil.which("npu-smi") is None:
        yield Check(
            "npu-smi",
            "warning",
            "npu-smi is not on PATH: the health of the NPUs is not known",
            "mount /usr/local/bin/npu-smi into the container",
        )
        return
    try:
        done = subprocess.run(["npu-smi", "info"], capture_output=True, text=True, timeout=15)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Check("npu-smi", "failed", f"npu-smi info: {error}", "restart the driver, or the host")
        return
    chips = list(read_smi(done.stdout))
    if done.returncode or not chips:
        text = (done.stderr or done.stdout).strip().splitlines()
        yield Check(
            "npu-smi",
            "failed",
            f"npu-smi info ends with {done.returncode} and lists no NPU: {text[0] if text else 'no output'}",
            "run it as a user of the group HwHiAiUser; reinstall the driver if it fails for root, too",
        )
        return
    ill = [chip for chip in chips if chip.health != "OK"]
    for chip in ill:
        yield Check(
            "npu-smi",
            "failed",
            f"NPU {chip.number} ({chip.name}) is in health {chip.health}",
            f"leave it out with {hardware.MASK}, and see `npu-smi info -t health -i {chip.number}`",
        )
    busy = [chip for chip in chips if chip.total and chip.used > 0.1 * chip.total]
    if busy:
        yield Check(
            "npu-smi",
            "warning",
            "memory in use: " + ", ".join(f"NPU {c.number} {c.used} of {c.total} MB" for c in busy),
            "end the jobs that `npu-smi info` lists, or choose other NPUs",
        )
    if not ill:
        sizes = sorted({f"{chip.name} {chip.total} MB" for chip in chips})
        yield Check("npu-smi", "ok", f"{len(chips)} NPUs healthy: {', '.join(sizes)}")


def read_smi(text: str) -> Iterator[Chip]:
    """The NPUs in the table that `npu-smi info` prints: two rows each, the second with the use of HBM last."""
    head: tuple[int, str, str] | None = None
    for line in text.splitlines():
        cells = [cell.split() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3 or not cells[0] or not cells[0][0].isdigit() or not cells[1]:
            continue
        if head is None:
            head = (int(cells[0][0]), " ".join(cells[0][1:]), cells[1][0])
            continue
        pairs = re.findall(r"(\d+)\s*/\s*(\d+)", line.rpartition("|")[0].rpartition("|")[2])
        used, total = (int(value) for value in pairs[-1]) if pairs else (0, 0)
        yield Chip(*head, used, total)
        head = None
