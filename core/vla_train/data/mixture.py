"""Drawing samples from a weighted mixture of datasets, the same on every machine and process."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from vla_train.data.errors import DataError


def draw_seed(epoch: int, index: int, seed: int) -> int:
    """128-bit seed of one draw: the low bits of SHA-256 over the text of the tuple `(epoch, index, seed)`."""
    digest = hashlib.sha256(repr((epoch, index, seed)).encode("utf-8")).hexdigest()
    return int(digest, 16) & ((1 << 128) - 1)


class MixtureSampler:
    """Which (dataset, step) an index stands for.

    Every index draws a dataset by weight, then a step of it uniformly, from its own random generator, so the map
    depends on (epoch, index, seed) alone: not on the process, the worker or the order of calls.

    Args:
        lengths: steps of every dataset; > 0.
        weights: sampling weights; > 0, any scale.
        seed: seed of the map.
        train: false makes the map independent of epoch and seed (evaluation).

    Raises:
        DataError: no dataset, an empty dataset, or a weight that is not positive.
    """

    def __init__(self, lengths: Sequence[int], weights: Sequence[float], *, seed: int = 42, train: bool = True) -> None:
        if not lengths or min(lengths) < 1 or not all(w > 0 for w in weights):
            raise DataError(
                "the mixture cannot be sampled",
                why=f"steps per dataset: {list(lengths)}, weights: {list(weights)}",
                fix="every dataset needs at least one step and a weight above 0",
            )
        self.lengths = np.asarray(lengths, dtype=np.int64)
        raw = np.asarray(weights, dtype=np.float64)
        self.weights = raw / raw.sum()
        self.seed, self.train, self.epoch = seed, train, 0
        # The epoch is long enough to see the largest of these datasets once on average.
        primary = raw == 1.0 if (raw == 1.0).any() else raw == raw.max()
        self._length = int((self.lengths / self.weights)[primary].max())

    def __len__(self) -> int:
        return self._length

    def draw(self, index: int) -> tuple[int, int]:
        """(dataset, step within the dataset) of `index` in the current epoch."""
        rng = np.random.default_rng(draw_seed(self.epoch, index, self.seed) if self.train else index)
        dataset = int(rng.choice(len(self.lengths), p=self.weights))
        return dataset, int(rng.choice(int(self.lengths[dataset])))
