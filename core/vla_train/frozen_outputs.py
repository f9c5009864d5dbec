"""What a frozen network makes of training samples, on disk: it sees each of them once, in all epochs and runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

from vla_backend import BackendError
from vla_train.tensor_store import TensorStore, fingerprint

_WATCHED = 100_000  # samples whose content is compared with what it was before


def digest(content: Iterable[torch.Tensor]) -> str:
    """A name for the bytes of `content`, wherever it is; 1 GB takes about a second."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in content:
        found.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


class FrozenOutputs:
    """Outputs keyed by the sample's content, the network's weights, and whatever else changes their numbers.

    An output that is not there is computed from its sample alone, so that its numbers do not depend on the rest of the
    batch.

    Args:
        network: what computes them; hashed once, and again after weights were loaded into it.
        store: where they lie.
        version: to be raised when the computation changes their values.
        what: the network in words, for messages.
        option: the switch of the configuration, for messages.
        error: class of the errors raised.
    """

    def __init__(
        self,
        network: nn.Module,
        store: TensorStore,
        *,
        version: int,
        what: str,
        option: str,
        error: type[BackendError],
    ) -> None:
        self.network, self.store, self.version = network, store, version
        self.what, self.option, self.error = what, option, error
        self._fingerprint: str | None = None
        self._seen: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
        network.register_load_state_dict_post_hook(lambda *_: self.forget())

    def forget(self) -> None:
        """New weights give new outputs."""
        self._fingerprint = None

    def outputs(
        self,
        contents: Sequence[str],
        sample_ids: Sequence[str] | None,
        settings: Sequence[object],
        compute: Callable[[int], torch.Tensor],
    ) -> list[torch.Tensor]:
        """Outputs of the samples of a batch; on the CPU those that were there, the others as `compute` gives them.

        Args:
            contents: each sample's `digest`.
            sample_ids: their names; a name whose content is other than before shows that the data is augmented.
            settings: what else an output depends on, e.g. chip and precision.
            compute: the network on the sample at a place of the batch, alone.

        Raises:
            BackendError: of class `error`: the network is trained, or the data is augmented at random.
        """
        self._refuse_trained()
        self._refuse_random(contents, sample_ids or [])
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.network.state_dict())
        key = (self.version, self._fingerprint, *settings)
        paths = [self.store.file(*key, content) for content in contents]
        found = list(self._pool.map(self.store.load, paths))
        return [
            self._made(path, compute, at) if one is None else one
            for at, (path, one) in enumerate(zip(paths, found, strict=True))
        ]

    def _made(self, path: Path, compute: Callable[[int], torch.Tensor], at: int) -> torch.Tensor:
        made = compute(at)
        self.store.save(path, made)
        return made

    def _refuse_trained(self) -> None:
        if any(parameter.requires_grad for parameter in self.network.parameters()):
            raise self.error(
                f"{self.option} is true, but {self.what} is trained.",
                why="its outputs change with every step",
                fix=f"set {self.option}=false",
            )

    def _refuse_random(self, contents: Sequence[str], sample_ids: Sequence[str]) -> None:
        for name, content in zip(sample_ids, contents, strict=False):
            if self._seen.get(name, content) != content:
                raise self.error(
                    f"{self.option} is true, but the data gives other frames every time.",
                    why=f"sample {name} was another before: images are augmented at random, or changed on disk",
                    fix=f"set {self.option}=false, or turn the augmentation off",
                )
            if len(self._seen) < _WATCHED:
                self._seen[name] = content
