"""Puts the simulation under torch_npu when a process imports it.

`import torch` loads torch_npu itself (entry point group `torch.backends`), so the hook sits on torch_npu: before it,
the simulated libraries are loaded; after it, its operators get their CPU meaning.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def hook_import() -> None:
    """Arrange for the simulation to be put in place when torch_npu is imported."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch_npu":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:  # get_filename and others, asked for by inspect and pkgutil
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        toolkit = Path(os.environ["CANN_SIM_TOOLKIT"])
        load_libraries(toolkit)
        if "CANN_SIM_TASK_QUEUE" not in os.environ:
            os.environ["TASK_QUEUE_ENABLE"] = "0"
        self._loader.exec_module(module)
        from vla_backend_ascend.cann_sim import operators

        operators.install(toolkit)


def load_libraries(toolkit: Path) -> None:
    """Load the simulated libraries for all that follow, also where LD_LIBRARY_PATH has been emptied."""
    libraries = toolkit / "lib64"
    for path in (libraries / "libascendcl.so", libraries / "libhccl.so", *sorted(libraries.glob("*.so"))):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
