"""From templates to files; nothing that exists is touched."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vla_train.scaffold.names import Names, ScaffoldError

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from importlib.resources.abc import Traversable
    else:
        from importlib.abc import Traversable

_SUFFIX: Final = ".tmpl"
#: Folders and files whose name depends on the plugin, or that packaging tools would leave out under their own name.
_RENAMED: Final = {"package": "@PACKAGE@", "ci": ".github/workflows", "gitignore": ".gitignore"}


def write(names: Names, out: Path) -> list[Path]:
    """Write the package into the folder `out`; answers the files, relative to it.

    Raises:
        ScaffoldError: `out` exists and is not an empty folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ScaffoldError(
            f"{out} exists.",
            why="files that are there are never overwritten",
            fix="name a new folder with --out, or remove it",
        )
    texts = render(names)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Built beside the target and moved, so that a failure half-way leaves nothing behind.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as made:
        whole = Path(made) / "whole"
        for relative, text in texts.items():
            path = whole / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if out.exists():
            out.rmdir()  # empty, as checked above
        whole.rename(out)
    return sorted(texts)


def render(names: Names) -> dict[Path, str]:
    """Every file's text by its path."""
    tokens = names.tokens()
    root = resources.files("vla_train.scaffold") / "template"
    return {Path(_filled(path, tokens)): _filled(text, tokens) for path, text in _templates(root, "")}


def _templates(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in folder.iterdir():
        name = entry.name.removesuffix(_SUFFIX)
        path = f"{prefix}{_RENAMED.get(name, name)}"
        if entry.is_dir():
            found += _templates(entry, f"{path}/")
        elif entry.name.endswith(_SUFFIX):
            found.append((path, entry.read_text(encoding="utf-8")))
    return found


def _filled(text: str, tokens: dict[str, str]) -> str:
    return re.sub(r"@([A-Z_]+)@", lambda match: tokens[match.group(1)], text)
