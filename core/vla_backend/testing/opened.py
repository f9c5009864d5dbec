"""The backends of one test session, and starting a session inside a simulator."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import metadata
from typing import Final

from vla_backend.activation import activate
from vla_backend.backend import Backend
from vla_backend.discovery import find
from vla_backend.errors import BackendError
from vla_backend.testing.regions import RegionObserver

SIMULATORS: Final = "vla.simulators"
_SUFFIX: Final = "-sim"
#: Set inside a simulator, to the backend that it simulates.
_INSIDE: Final = "VLA_TESTING_SIMULATED"


class Opened:
    """Backends by the name of the option, each opened once.

    Args:
        names: what `--vla-backend` says.

    Attributes:
        observers: the watcher of each backend's full-precision regions, by the backend's name.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._backends: dict[str, Backend] = {}
        self.observers: dict[str, RegionObserver] = {}

    def backend(self, name: str) -> Backend:
        """The backend `name`, device-ready.

        Raises:
            BackendError: it cannot run here, or is none.
        """
        if not self._backends:
            self._open()
        return self._backends[name]

    def _open(self) -> None:
        """All at once: chips before the CPU, whose plugin hides what is not loaded by then."""
        active = {}
        for name in self._names:
            observer = RegionObserver()
            backend = activate(find(name.removesuffix(_SUFFIX)), observers=[observer])
            active[name] = backend
            self.observers[backend.name] = observer
        for name, backend in sorted(active.items(), key=lambda item: item[1].probe().shared):
            backend.load_stack()
            backend.local_device(0)
            self._backends[name] = backend


def simulate(names: list[str], arguments: list[str]) -> int | None:
    """Run pytest with `arguments` inside the simulator that `names` ask for; `None` if this process need not.

    Raises:
        BackendError: there is no such simulator, or several are asked for.
    """
    asked = sorted({name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)})
    if not asked or os.environ.get(_INSIDE) in asked:
        return None
    if len(asked) > 1:
        raise BackendError(
            f"One test session cannot simulate {' and '.join(asked)}.",
            why="a simulator takes the place of the vendor's libraries in the whole process",
            fix="run pytest once for each",
        )
    name = asked[0]
    simulators = {entry.name: entry for entry in metadata.entry_points(group=SIMULATORS)}
    if name not in simulators:
        raise BackendError(
            f"No simulator for '{name}' is installed.",
            why=f"installed simulators: {', '.join(sorted(simulators)) or 'none'}",
            fix=f"leave out the '{_SUFFIX}' to run on the chip itself",
        )
    module = simulators[name].load()
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    os.environ[_INSIDE] = name
    try:
        code: int = module.start(parser.parse_args([]), [sys.executable, "-m", "pytest", *arguments])
    finally:
        del os.environ[_INSIDE]
    return code
