"""What is installed, found without importing it: a broken package must not stop the check that reports it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from vla_backend import extensions


@dataclass(frozen=True)
class TorchBuild:
    """The installed torch.

    Attributes:
        version: full version with its local part, e.g. "2.13.0+cpu".
        cuda: CUDA release it was built for, "" if none.
        hip: ROCm release it was built for, "" if none.
        folder: its package folder.
    """

    version: str
    cuda: str
    hip: str
    folder: Path

    @property
    def release(self) -> str:
        """The version without its local part."""
        return self.version.partition("+")[0]


def torch_build() -> TorchBuild | None:
    """Read `torch/version.py` as text; `None` if torch is not installed."""
    folder = package_folder("torch")
    if folder is None or not (folder / "version.py").is_file():
        return None
    text = (folder / "version.py").read_text(encoding="utf-8")
    values = dict(re.findall(r"^(\w+)\s*(?::[^=\n]*)?=\s*['\"]([^'\"\n]*)['\"]", text, re.MULTILINE))
    return TorchBuild(values.get("__version__", ""), values.get("cuda", ""), values.get("hip", ""), folder)


def package_folder(name: str) -> Path | None:
    """Folder of the top-level package `name`, `None` if it is not installed."""
    try:
        spec = (importlib.machinery.PathFinder if extensions.hidden(name) else importlib.util).find_spec(name)
    except ValueError:
        # `find_spec` refuses a module that sits in `sys.modules` without a specification.
        file = getattr(sys.modules.get(name), "__file__", None)
        return Path(file).parent if file else None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def distribution_version(name: str) -> str:
    """Version of the distribution `name` from its metadata, "" if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
