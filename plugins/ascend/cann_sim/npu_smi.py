"""`npu-smi` of the simulated machine: the parts of `npu-smi info` that programs read.

The table has the form of driver 24.1; memory in use is what the processes of the simulation have allocated.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

MAX_DEVICES, MAX_PROCESSES = 16, 256  # of src/sim.h
_PROCESS = struct.Struct(f"i4x{MAX_DEVICES}Q")
DRIVER = "24.1.rc3 (simulated CANN)"


def processes(session: Path) -> list[tuple[int, list[int]]]:
    """(pid, bytes in use per device) of every living process."""
    state = session / "machine"
    data = state.read_bytes() if state.exists() else b""
    found = []
    for index in range(min(MAX_PROCESSES, len(data) // _PROCESS.size)):
        pid, *used = _PROCESS.unpack_from(data, index * _PROCESS.size)
        if pid and any(used) and Path(f"/proc/{pid}").exists():
            found.append((pid, used))
    return found


def info() -> str:
    """What `npu-smi info` prints."""
    count, capacity = int(os.environ["CANN_SIM_DEVICES"]), int(os.environ["CANN_SIM_MEMORY"])
    name = os.environ.get("CANN_SIM_SOC", "Ascend910B2").removeprefix("Ascend")
    running = processes(Path(os.environ["CANN_SIM_SESSION"]))
    line = "+" + "-" * 27 + "+" + "-" * 17 + "+" + "-" * 54 + "+"
    rows = [
        line,
        f"| npu-smi {DRIVER:<40} Version: {DRIVER:<40}|",
        line,
        "| NPU   Name                | Health          | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id          | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        line,
    ]
    for device in range(count):
        used = sum(per_device[device] for _, per_device in running) >> 20
        rows += [
            f"| {device:<6}{name:<20}| OK              | 0.0         0                 0    / 0             |",
            f"| 0                         | 0000:0{device:X}:00.0    "
            f"| 0           0    / 0          {used:<6}/ {capacity >> 20:<14}|",
            line,
        ]
    rows += [
        "| NPU     Chip              | Process id      | Process name             | Process memory(MB)        |",
        line,
    ]
    for device in range(count):
        here = [(pid, used[device] >> 20) for pid, used in running if used[device]]
        rows += [f"| {device:<8}0                 | {pid:<16}| {_name(pid):<25}| {mb:<26}|" for pid, mb in here]
        rows += [] if here else [f"| No running processes found in NPU {device:<52}|"]
        rows.append(line)
    return "\n".join(rows)


def listing() -> str:
    """What `npu-smi info -l` prints."""
    count = int(os.environ["CANN_SIM_DEVICES"])
    rows = [f"\tTotal Count                    : {count}\n"]
    rows += [
        f"\tNPU ID                         : {device}\n\tChip Count                     : 1\n"
        for device in range(count)
    ]
    return "\n".join(rows)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def main(arguments: list[str]) -> int:
    if arguments == ["info"]:
        print(info())
    elif arguments == ["info", "-l"]:
        print(listing())
    elif arguments in (["-v"], ["--version"]):
        print(f"npu-smi version: {DRIVER}")
    else:
        print(
            f"npu-smi of the simulated CANN: 'npu-smi {' '.join(arguments)}' is not simulated; "
            "known are info, info -l, -v"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
