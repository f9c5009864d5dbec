"""Small random weights in real formats, found through the installed models."""

from __future__ import annotations

import importlib
from pathlib import Path

from vla_backend.errors import BackendError
from vla_train import models


def formats() -> dict[str, str]:
    """The "module:function" that writes each format, of all installed models."""
    found: dict[str, str] = {}
    for name in models.entries():
        found |= models.find(name).tiny
    return found


def write(name: str, folder: Path) -> None:
    """Write the format `name` into `folder`.

    Raises:
        BackendError: no installed model offers it.
    """
    offered = formats()
    if name not in offered:
        raise BackendError(
            f"No installed model offers tiny weights in the format '{name}'.",
            why=f"offered: {', '.join(sorted(offered)) or 'none'}",
            fix="install the model that does; it says so in ModelEntry.tiny",
        )
    module, _, function = offered[name].partition(":")
    getattr(importlib.import_module(module), function)(folder)
