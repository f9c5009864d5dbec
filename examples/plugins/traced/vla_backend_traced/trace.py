"""One line of JSON per call, one file per process."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FOLDER_ENV: Final = "VLA_TRACE_DIR"
_LONGEST: Final = 200


@contextlib.contextmanager
def record(hook: str, by: str, arguments: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Time the block and append a line; the block puts its "answer" into the dictionary it is given."""
    line: dict[str, Any] = {"time": time.time(), "hook": hook, "by": by}
    started = time.perf_counter()
    try:
        yield line
    except BaseException as error:
        line["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        line["seconds"] = time.perf_counter() - started
        line["arguments"] = [_short(argument) for argument in arguments]
        if "answer" in line:
            line["answer"] = _short(line["answer"])
        path = Path(os.environ.get(FOLDER_ENV, ".")) / f"trace-{os.getpid()}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _short(value: Any) -> str:
    """A tensor or module by its type: printing its values would wait for the device."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        text = f"{type(value).__name__}{tuple(shape)} {getattr(value, 'dtype', '')}".strip()
    elif hasattr(value, "named_parameters"):
        text = type(value).__name__
    else:
        text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
