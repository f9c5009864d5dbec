"""Which versions of torch, torch_npu, CANN, driver and Python belong together, from the dated table `versions.json`.

The doctor judges an installation by it, and `vla setup ascend` writes its script from it.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_backend_ascend.stack import release

TABLE = Path(__file__).with_name("versions.json")


@dataclass(frozen=True)
class VersionSet:
    """One release of torch_npu and what it was made for.

    Attributes:
        torch_npu: its version, post releases included.
        torch: the torch it belongs to, equal to the patch version.
        cann: releases of CANN it runs on; empty if none was published when the table was read.
        python: lowest and highest minor version that has wheels.
        driver: lowest driver known to work, "" if none was published.
        run_with: versions of Python and CANN that training jobs have run with; empty if none are known.
    """

    torch_npu: str
    torch: str
    cann: tuple[str, ...]
    python: tuple[str, str]
    driver: str = ""
    run_with: tuple[tuple[str, str], ...] = ()

    @property
    def pip(self) -> str:
        """What to install, for a shell."""
        return f"torch=={self.torch} torch_npu=={self.torch_npu}"

    def python_fits(self, version: tuple[int, ...]) -> bool:
        return numbers(self.python[0]) <= version[:2] <= numbers(self.python[1])


@dataclass(frozen=True)
class Table:
    """The whole table.

    Attributes:
        read: day on which the sources were read.
        sets: newest CANN first.
        proven: `torch_npu` of the set that training jobs have run with.
        recommended: `torch_npu` of the newest set with a published CANN.
        undeclared: packages that torch_npu imports and some of its wheels do not declare.
        mx_driving: its releases: version, range of torch, lowest and highest Python.
    """

    read: str
    sets: tuple[VersionSet, ...]
    proven: str
    recommended: str
    undeclared: tuple[str, ...]
    mx_driving: tuple[dict[str, Any], ...]

    def find(self, torch_npu: str) -> VersionSet | None:
        """The set of a release of torch_npu."""
        return next((entry for entry in self.sets if entry.torch_npu == torch_npu), None)

    def for_torch(self, version: str) -> list[VersionSet]:
        """The sets of a torch version, e.g. "2.7.1+cpu"."""
        return [entry for entry in self.sets if entry.torch == release(version)]


@functools.cache
def table() -> Table:
    """`versions.json`, read once."""
    raw = json.loads(TABLE.read_text(encoding="utf-8"))
    sets = tuple(
        VersionSet(
            entry["torch_npu"],
            entry["torch"],
            tuple(entry["cann"] or ()),
            (entry["python"][0], entry["python"][1]),
            entry.get("driver", ""),
            tuple(entry.get("run_with", {}).items()),
        )
        for entry in raw["sets"]
    )
    return Table(
        raw["read"], sets, raw["proven"], raw["recommended"], tuple(raw["undeclared"]), tuple(raw["mx_driving"])
    )


def numbers(version: str) -> tuple[int, ...]:
    """ "24.1.rc1" is (24, 1, 1): enough to order drivers and Pythons."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
