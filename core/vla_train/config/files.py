"""Naming what exists nearest to a path that does not."""

from __future__ import annotations

import difflib
from pathlib import Path


def datasets_below(folder: Path) -> str:
    """A remedy that names the LeRobot datasets in `folder`, which is none itself; "" if it holds none."""
    found = sorted(path.parents[1].name for path in folder.glob("*/meta/info.json"))
    return f"it holds datasets: {', '.join(found[:8])}{', ...' if len(found) > 8 else ''}; name one" if found else ""


def nearest_path(path: Path) -> str:
    """A remedy for a missing path: the path most like it that is there, or what is there instead."""
    # The first part of the path that is missing is the one to correct.
    missing = next((folder for folder in reversed(path.parents) if not folder.exists()), path)
    parent = missing.parent
    if parent.is_file():
        return f"{parent} is a file"
    names = sorted(entry.name for entry in parent.iterdir()) if parent.is_dir() else []
    near = difflib.get_close_matches(missing.name, names, n=1)
    if near:
        found = parent / near[0]
        whole = found / path.relative_to(missing)
        return f"did you mean {whole if whole.exists() else found}?"
    shown = [name for name in names if not name.startswith(".")]
    listing = ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "")
    return f"{parent.resolve()} holds: {listing or 'nothing'}"
