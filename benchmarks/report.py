"""The tables that `make bench` writes into docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True)
class Row:
    """One line: what was measured, the figure, and the bound it must keep with whether it does; None for no bound."""

    what: str
    figure: str
    bound: str = ""
    holds: bool | None = None


@dataclass(frozen=True)
class Section:
    """A title, a sentence on how it was measured, and rows."""

    title: str
    note: str
    rows: list[Row] = field(default_factory=list)


def machine() -> str:
    """What the figures were measured on, and how busy it was."""
    cpu = next(
        (line.split(":")[1].strip() for line in _cpuinfo().splitlines() if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    load = f", load average {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores of {cpu}{load}, Python {platform.python_version()}, torch {torch.__version__}"


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def markdown(sections: list[Section], minutes: float) -> str:
    """The page as text."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` in {minutes:.0f} minutes on {machine()}. A load average above the number of cores "
        "means that the machine was shared with other work.",
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.note, "", "| what | measured | bound | holds |"]
        lines += ["|---|---|---|---|"]
        words = {None: "", True: "yes", False: "**no**"}
        lines += [f"| {row.what} | {row.figure} | {row.bound} | {words[row.holds]} |" for row in section.rows]
    return "\n".join(lines) + "\n"
