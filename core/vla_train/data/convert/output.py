"""Files of the new dataset: each is written whole or not at all, so that an interrupted conversion can go on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from vla_train.data.errors import DataError

MARKER: Final = "conversion.json"
PARTS: Final = ".parts"
UNFINISHED: Final = ".unfinished"


class Output:
    """The folder that is written.

    While the conversion is under way it holds a marker that says what is converted and how; `meta/info.json`, without
    which it is no dataset, is written last.

    Args:
        folder: new, empty, or left behind by the same conversion.
        conversion: what is converted and how, JSON-able.

    Raises:
        DataError: the folder holds something else.
    """

    def __init__(self, folder: Path, conversion: dict[str, Any]) -> None:
        self.folder, self._marker = folder, folder / MARKER
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            begun = json.loads(self._marker.read_text()) if self._marker.is_file() else None
            if begun is None:
                raise DataError(
                    f"{folder} exists already", why="nothing is overwritten", fix="name a new folder, or remove it"
                )
            if begun != conversion:
                changed = [key for key in conversion if begun.get(key) != conversion[key]]
                raise DataError(
                    f"{folder} holds another conversion that was interrupted",
                    why=f"it differs in: {', '.join(changed)} "
                    f"({', '.join(f'{begun.get(key)} then, {conversion[key]} now' for key in changed)})",
                    fix="go on with what it was begun with, or remove the folder",
                )
        folder.mkdir(parents=True, exist_ok=True)
        if not self._marker.exists():
            self.json(MARKER, conversion)

    def write(self, name: str, make: Callable[[Path], Any]) -> None:
        """`make` the file `name` unless an earlier run did; it is given a temporary path."""
        path = self.folder / name
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}{UNFINISHED}")
        make(temporary)
        os.replace(temporary, path)

    def json(self, name: str, value: Any) -> None:
        """Write a JSON file, always anew."""
        self._text(name, json.dumps(value, indent=4, ensure_ascii=False) + "\n")

    def json_lines(self, name: str, values: Iterable[Any]) -> None:
        """Write one JSON object per line, always anew."""
        self._text(name, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))

    def finish(self, info: dict[str, Any]) -> None:
        """Write `meta/info.json` and remove what served the conversion only."""
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        for path in self.folder.rglob(f".*{UNFINISHED}"):
            path.unlink()
        self.json("meta/info.json", info)
        self._marker.unlink()

    def _text(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}{UNFINISHED}")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
