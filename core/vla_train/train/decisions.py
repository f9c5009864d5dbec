"""Which versions a run used."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final

PACKAGES: Final = (
    "vla-backend",
    "torch",
    "transformers",
    "diffusers",
    "deepspeed",
    "accelerate",
    "numpy",
    "safetensors",
)


def versions() -> dict[str, str]:
    """Installed versions by package, without importing any."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
