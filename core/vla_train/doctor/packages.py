"""Versions of Python and of the packages that training uses, from their metadata alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from vla_backend.health import Check, Outcome
from vla_backend.installed import distribution_version

DISTRIBUTION: Final = "vla-backend"
TABLE: Final = Path(__file__).with_name("versions.json")
#: What is worth a line; everything else that is required is checked in one.
NAMED: Final = ("torch", "transformers", "diffusers", "accelerate", "deepspeed")
#: Training runs without these; what does not.
BESIDE: Final = {"msgpack": "vla serve", "pyzmq": "vla serve", "websockets": "vla serve"}


def python() -> Check:
    """The interpreter against the range of this product."""
    wanted = str(metadata.metadata(DISTRIBUTION)["Requires-Python"] or "")
    version = ".".join(map(str, sys.version_info[:3]))
    if not Requirement(f"python{wanted}").specifier.contains(version):
        return Check("python", "failed", f"{version}, wanted is {wanted}", "use Python 3.10 to 3.13")
    return Check("python", "ok", f"{version} ({sys.executable})")


def packages(zero: bool, version_of: Callable[[str], str] = distribution_version) -> Iterator[Check]:
    """Every required package: installed, and in the range that this product states.

    Args:
        zero: whether the run uses DeepSpeed.
        version_of: of a distribution, "" if it is not installed.
    """
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    others: list[tuple[Requirement, str]] = []
    count = 0
    for requirement in requirements():
        name, version = requirement.name, version_of(requirement.name)
        problem = _problem(requirement, version)
        if name in NAMED:
            yield _named(requirement, version, problem, table, optional=name == "deepspeed" and not zero)
        elif problem:
            others.append((requirement, problem))
        else:
            count += 1
    for outcome, wanted in (("failed", False), ("warning", True)):
        found = [(item, problem) for item, problem in others if (item.name in BESIDE) == wanted]
        if found:
            what = f" (only {BESIDE[found[0][0].name]} needs them)" if wanted else ""
            text = ", ".join(f"{item.name} {problem}" for item, problem in found) + what
            names = " ".join(f'"{item.name}{item.specifier}"' for item, _ in found)
            yield Check("packages", outcome, text, f"pip install {names}")  # type: ignore[arg-type]
    if not others:
        yield Check("packages", "ok", f"{count} others in range")


def requirements() -> list[Requirement]:
    """What this product requires here, extras left out."""
    parsed = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    return [item for item in parsed if item.marker is None or item.marker.evaluate({"extra": ""})]


def _problem(requirement: Requirement, version: str) -> str:
    if not version:
        return "not installed"
    try:
        parsed = Version(version)
    except InvalidVersion:
        return f"version {version} cannot be read"
    # The local part ("+cpu") names a build, not another version.
    return "" if requirement.specifier.contains(parsed.public, prereleases=True) else f"installed is {version}"


def _named(requirement: Requirement, version: str, problem: str, table: dict[str, Any], optional: bool) -> Check:
    name = requirement.name
    if problem:
        outcome: Outcome = "warning" if optional and not version else "failed"
        needed = "; only --zero needs it" if optional and not version else ""
        return Check(
            name, outcome, f"{problem}, wanted is {requirement.specifier}{needed}", f'pip install "{requirement}"'
        )
    tested = [entry[name] for entry in table["tested"] if name in entry]
    if Version(version).public in tested:
        return Check(name, "ok", f"{version}, tested ({table['read']})")
    return Check(
        name, "ok", f"{version}, in range {requirement.specifier}; tested are {', '.join(tested)} ({table['read']})"
    )
