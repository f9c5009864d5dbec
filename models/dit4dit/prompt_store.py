"""Prompt embeddings on disk, and which text encoder made them."""

from __future__ import annotations

from pathlib import Path

import torch

from vla_train.data import cache
from vla_train.tensor_store import TensorStore, fingerprint

__all__ = ["PromptStore", "fingerprint"]
#: Raise it when the computation of an embedding changes its values.
VERSION = 1


class PromptStore(TensorStore):
    """One file per instruction, named after the encoder's fingerprint and the token ids.

    Args:
        folder: where the files lie; "auto" for `$XDG_CACHE_HOME/vla-backend/prompts`.
        limit: bytes; the files used longest ago go first.
    """

    def __init__(self, folder: Path | str, limit: int) -> None:
        place = cache.cache_folder("prompts") if folder == "auto" else Path(folder).expanduser()
        super().__init__(place, limit, "prompt embedding")

    def path(self, encoder: str, token_ids: torch.Tensor) -> Path:
        """The file of one instruction."""
        return self.file(VERSION, encoder, token_ids.flatten().tolist())

    def encoder_of(self, weights: Path, dtype: torch.dtype) -> str | None:
        """The fingerprint of the encoder in a folder of weights as `remember` noted it; None if they have changed."""
        found = cache.load(self._note(weights, dtype))
        return found["fingerprint"] if isinstance(found, dict) else None

    def remember(self, weights: Path, dtype: torch.dtype, encoder: str) -> None:
        """Note the fingerprint of an encoder as it was loaded, so that next time it need not be."""
        cache.store(self._note(weights, dtype), {"fingerprint": encoder, "weights": str(weights), "dtype": str(dtype)})

    def _note(self, weights: Path, dtype: torch.dtype) -> Path:
        return self.folder / cache.content_file("encoders", weights, cache.all_files(weights), VERSION, dtype).name
