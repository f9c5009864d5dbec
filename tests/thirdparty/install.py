"""Distributions of third parties on `sys.path` or PYTHONPATH, as pip would put them there, without running pip."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DEVICE = EXAMPLES / "plugins" / "privateuse1" / "device"
PAPER = EXAMPLES / "plugins" / "privateuse1" / "plugin"
TRACED = EXAMPLES / "plugins" / "traced"
CLONING = EXAMPLES / "behaviour_cloning"


def paper_runs() -> bool:
    """Whether this torch can make a device in Python alone (2.10 and later)."""
    from torch.utils import backend_registration

    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def install(site: Path, *projects: Path) -> Path:
    """Make `site` a folder that offers the projects' packages and entry points; answers `site`.

    Packages are linked, so what runs is what is in the project.
    """
    site.mkdir(parents=True, exist_ok=True)
    for project in projects:
        described: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text())
        name, version = described["project"]["name"], described["project"]["version"]
        for package in described["tool"]["setuptools"]["packages"]:
            (site / package).symlink_to((project / package).resolve())
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines: list[str] = []
        for group, entries in described["project"].get("entry-points", {}).items():
            lines += [f"[{group}]", *(f"{entry} = {target}" for entry, target in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return site


def environment(site: Path, **more: str) -> dict[str, str]:
    """The environment of a process that sees `site`."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VLA_")}
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}
