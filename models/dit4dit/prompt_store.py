"""Prompt embeddings on disk, shared by all runs and processes of a machine."""

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

from vla_train.data.cache import cache_folder

log = logging.getLogger(__name__)
#: Raise it when the computation of an embedding changes its values.
VERSION = 1


def fingerprint(weights: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, shapes, dtypes and every byte of `weights`, wherever they are."""

    def one(item: tuple[str, torch.Tensor]) -> bytes:
        name, tensor = item
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        head = f"{name}|{tuple(tensor.shape)}|{tensor.dtype}|".encode()
        return head + hashlib.sha256(content).digest()

    # hashlib lets other threads run meanwhile: a 7B encoder takes 10 s on one core, far less on a server.
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return hashlib.sha256(b"".join(pool.map(one, sorted(weights.items())))).hexdigest()


class PromptStore:
    """One safetensors file per instruction, named after the encoder's fingerprint and the token ids.

    Processes may read and write at the same time: files appear complete, by renaming. What cannot be read counts as
    absent, what cannot be written is said once and not kept.

    Args:
        folder: where the files lie; "auto" for `$XDG_CACHE_HOME/vla-backend/prompts`.
        limit: bytes; the files used longest ago go first.
    """

    def __init__(self, folder: Path | str, limit: int) -> None:
        self.folder = cache_folder("prompts") if folder == "auto" else Path(folder).expanduser()
        self.limit = limit
        self.writes = True

    def path(self, encoder: str, token_ids: torch.Tensor) -> Path:
        """The file of one instruction."""
        key = f"{VERSION}|{encoder}|{token_ids.flatten().tolist()}"
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.safetensors"

    def load(self, path: Path) -> torch.Tensor | None:
        """The embedding (S, E), or None."""
        try:
            with safe_open(path, "pt") as file:
                embedding, wanted = file.get_tensor("embedding"), (file.metadata() or {}).get("crc32")
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError) as error:
            log.warning("the cached prompt embedding %s is unreadable and computed anew: %s", path, error)
            return None
        if wanted != _checksum(embedding):
            log.warning("the cached prompt embedding %s is damaged and computed anew", path)
            return None
        return embedding

    def save(self, path: Path, embedding: torch.Tensor, instruction: str) -> None:
        """Keep an embedding (S, E)."""
        embedding = embedding.detach().cpu().contiguous()
        if not self.writes or embedding.nbytes > self.limit:
            return
        metadata = {"instruction": instruction, "crc32": _checksum(embedding)}
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(embedding.nbytes)
            handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".partial")
            os.close(handle)
            save_file({"embedding": embedding}, temporary, metadata)
            os.replace(temporary, path)
        except (OSError, SafetensorError) as error:
            self.writes = False
            log.warning("prompt embeddings are not kept in %s from now on: %s", self.folder, error)
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        files = []
        for path in self.folder.glob("*.safetensors"):
            with contextlib.suppress(FileNotFoundError):  # Another process makes room, too.
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total + wanted <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= size


def _checksum(embedding: torch.Tensor) -> str:
    return str(zlib.crc32(embedding.flatten().view(torch.uint8).numpy()))
