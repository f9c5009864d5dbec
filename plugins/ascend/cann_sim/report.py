"""Time per operator: how much of it is the CPU kernel and how much the simulation adds."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OperatorTime:
    name: str
    calls: int
    total_us: float
    kernel_us: float

    @property
    def overhead_us(self) -> float:
        """Microseconds per call that are not the kernel's."""
        return (self.total_us - self.kernel_us) / max(self.calls, 1)


def install() -> None:
    """Under CANN_SIM_REPORT, time every operator and append the table to that file when the process ends."""
    path = os.environ.get("CANN_SIM_REPORT")
    if path:
        start()
        atexit.register(_write, Path(path))


def start() -> None:
    import torch

    torch.ops.cann_sim.timing(True)


def collect() -> list[OperatorTime]:
    """What has been measured in this process since `start`, most expensive first."""
    import torch

    rows = []
    for line in torch.ops.cann_sim.statistics():
        name, calls, total, kernel = line.split()
        rows.append(OperatorTime(name, int(calls), int(total) / 1e3, int(kernel) / 1e3))
    return sorted(rows, key=lambda row: -row.total_us)


def table(rows: list[OperatorTime]) -> str:
    """The rows as text, with the sum in the last line."""
    lines = [f"{'operator':44}{'calls':>9}{'total ms':>11}{'kernel ms':>11}{'added us/call':>15}"]
    for row in [*rows, total(rows)]:
        lines.append(
            f"{row.name:44}{row.calls:9}{row.total_us / 1e3:11.1f}{row.kernel_us / 1e3:11.1f}{row.overhead_us:15.2f}"
        )
    return "\n".join(lines)


def total(rows: list[OperatorTime]) -> OperatorTime:
    return OperatorTime(
        "all", sum(r.calls for r in rows), sum(r.total_us for r in rows), sum(r.kernel_us for r in rows)
    )


def _write(path: Path) -> None:
    rows = collect()
    if not rows:
        return
    rank = os.environ.get("RANK", "0")
    with path.open("a") as file:
        file.write(f"simulated CANN, process {os.getpid()}, rank {rank}\n{table(rows)}\n\n")
