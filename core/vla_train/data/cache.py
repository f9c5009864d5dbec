"""Files kept between runs, outside the datasets: JSON, named after what they were computed from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


def cache_folder(kind: str) -> Path:
    """`$XDG_CACHE_HOME/vla-backend/<kind>`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vla-backend" / kind


def content_file(kind: str, folder: Path, paths: Iterable[Path], *salt: object) -> Path:
    """Where a result about files is cached; another size or time of a file gives another name.

    Args:
        kind: sub-folder of the cache.
        folder: dataset folder, part of the name.
        paths: files the result was computed from; those that do not exist count as absent.
        salt: everything else the result depends on, the version of its computation first.
    """
    digest = hashlib.sha256(repr((*salt, str(folder.resolve()))).encode())
    for path in paths:
        name = path.relative_to(folder).as_posix()
        try:
            status = path.stat()
            digest.update(f"{name}|{status.st_size}|{status.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(f"{name}|absent\n".encode())
    return cache_folder(kind) / f"{folder.name}-{digest.hexdigest()[:32]}.json"


def all_files(folder: Path) -> Iterator[Path]:
    """Every file below a folder, sorted."""
    for root, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        yield from (Path(root) / name for name in sorted(names))


def load(path: Path) -> Any:
    """The cached value, or `None`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def store(path: Path, value: Any) -> None:
    """Write atomically, so that processes computing the same thing at once never read half a file."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as handle:
            temporary = handle.name
            json.dump(value, handle)
        os.replace(temporary, path)
    except OSError as error:
        log.warning("%s is not cached: %s", path.parent.name, error)
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
