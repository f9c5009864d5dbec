"""Where in the tested code something was called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_HERE: Final = str(Path(__file__).parent)
_CONTRACT: Final = str(Path(__file__).parents[1])
_FOREIGN: Final = ("torch/", "pluggy/", "contextlib.py", "unittest/")
_SKIPPED: Final = tuple(os.sep + part.replace("/", os.sep) for part in _FOREIGN)


def caller() -> str:
    """ "file.py:line" of the nearest frame outside torch and the contract."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _CONTRACT)) and not any(part in name for part in _SKIPPED):
            break
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.f_lineno}"
