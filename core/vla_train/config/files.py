"""Naming what exists nearest to a path that does not."""

from __future__ import annotations

import difflib
from pathlib import Path


def nearest_path(path: Path) -> str:
    """A remedy for a missing path: the name most like the part that is missing, or what is there instead."""
    # The first part of the path that is missing is the one to correct.
    path = next((folder for folder in reversed(path.parents) if not folder.exists()), path)
    parent = path.parent
    names = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.4)
    if near:
        return f"did you mean {parent / near[0]}?"
    listing = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
    return f"{parent.resolve()} holds: {listing or 'nothing'}"
