"""Computed tensors on disk, shared by all runs and processes of a machine."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

log = logging.getLogger(__name__)


def fingerprint(weights: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, shapes, dtypes and every byte of `weights`, wherever they are."""

    def one(item: tuple[str, torch.Tensor]) -> bytes:
        name, tensor = item
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        head = f"{name}|{tuple(tensor.shape)}|{tensor.dtype}|".encode()
        return head + hashlib.sha256(content.data).digest()

    # hashlib lets other threads run meanwhile: a 7B encoder takes 10 s on one core, far less on a server.
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return hashlib.sha256(b"".join(pool.map(one, sorted(weights.items())))).hexdigest()


class TensorStore:
    """One safetensors file per tensor, named after what it was computed from.

    Processes may read and write at the same time: files appear complete, by renaming. What cannot be read counts as
    absent, what cannot be written is said once and not kept.

    Args:
        folder: where the files lie.
        limit: bytes; the files used longest ago go first. Processes that write at once may each exceed it by a
            sixteenth.
        what: one of the tensors in words, for messages.
    """

    def __init__(self, folder: Path, limit: int, what: str) -> None:
        self.folder, self.limit, self.what = folder, limit, what
        self.writes = True
        self._room, self._written = 0, 0

    def file(self, *key: object) -> Path:
        """The file of the tensor that `key` describes completely."""
        return self.folder / f"{hashlib.sha256('|'.join(map(str, key)).encode()).hexdigest()}.safetensors"

    def load(self, path: Path) -> torch.Tensor | None:
        """The tensor, on the CPU, or None."""
        try:
            with safe_open(path, "pt") as file:
                tensor, wanted = file.get_tensor(self._name), (file.metadata() or {}).get("crc32")
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError) as error:
            log.warning("the cached %s %s is unreadable and computed anew: %s", self.what, path, error)
            return None
        if wanted != _checksum(tensor):
            log.warning("the cached %s %s is damaged and computed anew", self.what, path)
            return None
        return tensor

    def save(self, path: Path, tensor: torch.Tensor, about: str = "") -> None:
        """Keep a tensor; `about` is written beside it for people."""
        tensor = tensor.detach().cpu().contiguous()
        if not self.writes or tensor.nbytes > self.limit:
            return
        metadata = {"about": about, "crc32": _checksum(tensor)}
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(tensor.nbytes)
            handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".partial")
            os.close(handle)
            save_file({self._name: tensor}, temporary, metadata)
            os.replace(temporary, path)
        except (OSError, SafetensorError) as error:
            self.writes = False
            log.warning("%ss are not kept in %s from now on: %s", self.what, self.folder, error)
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return self.what.rpartition(" ")[2]

    def _make_room(self, wanted: int) -> None:
        """Look at the folder only now and then: it may hold a file per sample of a data set."""
        self._room -= wanted
        self._written += wanted
        if self._room >= 0 and self._written <= self.limit / 16:
            return
        files = []
        for path in self.folder.glob("*.safetensors"):
            with contextlib.suppress(FileNotFoundError):  # Another process makes room, too.
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        # What is removed makes room for many, so that a full folder is not listed for every tensor.
        goal = self.limit if total + wanted <= self.limit else self.limit * 15 // 16
        for _, size, path in sorted(files):
            if total + wanted <= goal:
                break
            path.unlink(missing_ok=True)
            total -= size
        self._room, self._written = self.limit - total - wanted, wanted


def _checksum(tensor: torch.Tensor) -> str:
    return str(zlib.crc32(tensor.flatten().view(torch.uint8).numpy().data))
