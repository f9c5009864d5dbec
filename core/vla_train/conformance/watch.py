"""What a call does besides answering: imports, the environment, and its arguments."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Final

_KNOWN: Final = (
    "torch numpy scipy pandas accelerate deepspeed diffusers transformers safetensors torchvision av decord torchcodec"
)


@functools.cache
def heavy_packages() -> frozenset[str]:
    """Top-level packages that nothing may import before `load_stack`: torch, what builds on it, what extends it."""
    # Vendors register the package that extends torch for their chip in this group.
    extensions = {entry.module.partition(".")[0] for entry in metadata.entry_points(group="torch.backends")}
    return frozenset(_KNOWN.split()) | extensions


def offenders(before: set[str]) -> list[str]:
    """Heavy packages, and compiled modules of any other third party, that were imported since `before`."""
    found = set()
    library = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))
    for name in set(sys.modules) - before:
        top = name.partition(".")[0]
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        compiled = file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
        own = str(Path(file).resolve()).startswith(library) and "site-packages" not in file
        if top in heavy_packages() or (compiled and not own):
            found.add(top)
    return sorted(found)


@dataclass
class Seen:
    """Attributes:
    imported: heavy packages whose import was attempted.
    environment: variables that were set, changed or deleted.
    """

    imported: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watching() -> Iterator[Seen]:
    """Inside, importing a heavy package fails and is noted, and so is a change of the environment."""
    seen = Seen()
    finder = _Refusing(seen.imported)
    modules, environment = set(sys.modules), dict(os.environ)
    sys.meta_path.insert(0, finder)
    try:
        yield seen
    finally:
        sys.meta_path.remove(finder)
        seen.imported[:] = sorted({*seen.imported, *offenders(modules)})
        names = {*environment, *os.environ}
        seen.environment += sorted(name for name in names if environment.get(name) != os.environ.get(name))
        os.environ.clear()
        os.environ.update(environment)


class _Refusing(importlib.abc.MetaPathFinder):
    """Lets `importlib.util.find_spec` look at a heavy package, and refuses to import it."""

    def __init__(self, noted: list[str]) -> None:
        self._noted = noted

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in heavy_packages():
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _RefusingLoader(self._noted)
        return spec


class _RefusingLoader(importlib.abc.Loader):
    def __init__(self, noted: list[str]) -> None:
        self._noted = noted

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        self._noted.append(spec.name.partition(".")[0])
        raise ImportError(f"the conformance kit lets nothing import {spec.name} before load_stack")

    def exec_module(self, module: ModuleType) -> None:
        raise AssertionError("create_module has raised")
