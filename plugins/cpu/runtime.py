"""Memory of a process on the CPU."""

from __future__ import annotations

from vla_backend import MemoryStats, hookimpl
from vla_backend_cpu import machine


@hookimpl
def memory_stats(reset_peak: bool) -> MemoryStats:
    """Resident memory: torch keeps no statistics for the CPU, and nothing is reserved beyond what is used."""
    now = machine.resident()
    stats = MemoryStats(allocated=now, reserved=now, peak=max(now, machine.peak()), total=machine.total())
    if reset_peak:
        machine.reset_peak()
    return stats
