"""The manifest makes a checkpoint complete: it is written last and lists every file with size and checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.layout import MANIFEST, write_json

FORMAT: Final = 1


@dataclass(frozen=True)
class Entry:
    """One file: size in bytes and SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is.

    Attributes:
        step: optimizer steps done.
        world_size: processes that wrote it.
        strategy: "ddp", "zero2" or "zero3".
        config_sha256: of the run's configuration; see `config_hash`.
        files: every other file of the folder, by name relative to it.
        versions: of the packages that wrote it.
        format: of the layout.
    """

    step: int
    world_size: int
    strategy: str
    config_sha256: str
    files: dict[str, Entry] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())

    def write(self, folder: Path) -> None:
        write_json(folder / MANIFEST, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a checkpoint folder.

        Raises:
            CheckpointError: there is none, or it is not ours.
        """
        path = folder / MANIFEST
        try:
            raw = json.loads(path.read_text())
            files = {name: Entry(**entry) for name, entry in raw.pop("files").items()}
            manifest = cls(**raw, files=files)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{folder} is no complete checkpoint.",
                why=f"it has no {MANIFEST}, which is written last",
                fix="use another step; `vla checkpoint inspect` lists them",
            ) from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read.", why=str(error), fix="use another step") from error
        if manifest.format > FORMAT:
            raise CheckpointError(f"{path} has format {manifest.format}.", why=f"this release reads up to {FORMAT}")
        return manifest

    def problems(self, folder: Path, names: Iterable[str] | None = None, *, checksums: bool = True) -> list[str]:
        """What is wrong with the files in `folder`, one sentence each; `names` limits the check to some files."""
        found = []
        for name in self.files if names is None else names:
            path, entry = folder / name, self.files[name]
            if not path.is_file():
                found.append(f"{name} is missing")
            elif path.stat().st_size != entry.size:
                found.append(f"{name} has {path.stat().st_size} bytes instead of {entry.size}")
            elif checksums and describe(path).sha256 != entry.sha256:
                found.append(f"{name} has changed (SHA-256 differs)")
        return found


def whole(checkpoint: Path) -> bool:
    """Whether the folder has a manifest and every file in its full size; reads no contents."""
    try:
        return not Manifest.read(checkpoint).problems(checkpoint, checksums=False)
    except CheckpointError:
        return False


def describe(path: Path, *, sync: bool = False) -> Entry:
    """Size and checksum of a file; `sync` first makes sure that it is on the disk."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        while block := file.read(1 << 22):
            digest.update(block)
        return Entry(size=file.tell(), sha256=digest.hexdigest())


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration in canonical JSON."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()
