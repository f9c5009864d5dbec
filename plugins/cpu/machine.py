"""What this machine has: processors, their instructions, memory."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Final

CPUINFO = Path("/proc/cpuinfo")
#: Memory limit of a container, cgroup version 2 and 1.
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
PROC_STATUS = Path("/proc/self/status")
PROC_CLEAR_REFS = Path("/proc/self/clear_refs")
_BF16_FLAGS: Final = {"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"}


def usable_cpus() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_bf16_instructions() -> bool:
    """Whether bfloat16 products run in hardware; true where it cannot be known."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    lines = [line for line in text.splitlines() if line.lower().startswith(("flags", "features"))]
    return not lines or bool(_BF16_FLAGS & set(lines[0].split()))


def resident() -> int:
    """Resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak() -> int:
    """Highest resident memory since the start of the process or the last `reset_peak`, in bytes."""
    try:
        for line in PROC_STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    # Bytes on macOS, kibibytes elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak() -> None:
    """Count the peak anew; only Linux can, elsewhere the peak stays that of the whole process."""
    try:
        PROC_CLEAR_REFS.write_text("5", encoding="utf-8")
    except OSError:
        pass


def total() -> int:
    """Memory of the machine, or of the container if that is less, in bytes."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            # Absent, or "max".
            continue
    return min(limits)
