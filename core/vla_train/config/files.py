"""Naming what exists nearest to a path that does not."""

from __future__ import annotations

import difflib
from pathlib import Path


def nearest_path(path: Path) -> str:
    """A remedy for a missing file: the folder that is missing, or the names most like the one asked for."""
    parent = path.parent
    if not parent.is_dir():
        existing = next((folder for folder in parent.parents if folder.is_dir()), Path())
        return f"there is no folder {parent} either; {existing.resolve()} exists"
    names = [entry.name for entry in parent.iterdir()]
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.4)
    if near:
        return f"did you mean {parent / near[0]}?"
    listing = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
    return f"{parent.resolve()} holds: {listing or 'nothing'}"
