"""Device extensions of torch that this process has no use for, kept out of other libraries' sight.

Libraries ask whether a vendor's extension is installed, and then import it and call its kernels for every tensor,
whatever device the tensor is on. Where several chips' packages are installed, or one without its driver, that breaks
jobs on the others.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Final

#: Extensions register here, so that `import torch` can load them.
GROUP: Final = "torch.backends"

_hidden: set[str] = set()


def hide_unused() -> tuple[str, ...]:
    """Make every extension of torch that has not been imported by now look absent; answers the packages hidden.

    `importlib.util.find_spec` then answers `None`, and an import is a `ModuleNotFoundError`. An extension that is
    already imported stays: its operators are registered, and nothing can undo that.
    """
    for entry in metadata.entry_points(group=GROUP):
        package = entry.module.partition(".")[0]
        if package not in sys.modules:
            # Python's own mark for "not to be imported".
            sys.modules[package] = None  # type: ignore[assignment]
            _hidden.add(package)
    return tuple(sorted(_hidden))


def reveal() -> None:
    """Undo `hide_unused`."""
    for package in _hidden:
        if sys.modules.get(package, sys) is None:
            del sys.modules[package]
    _hidden.clear()


def hidden(package: str) -> bool:
    """Whether `package` only looks absent."""
    return package in _hidden
