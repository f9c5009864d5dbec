"""Random access to the endless order of a sharded mixture."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from vla_groot.schedule import mixture_schedule

_ORDERS_KEPT = 64


class StepStream:
    """`mixture_steps` by position: the n-th step is found without yielding those before it.

    Reading forward is cheap; going back starts again from the beginning of the stream.

    Args:
        shard_lengths: steps of every shard of every dataset.
        weights: of the datasets.
        count: shards of an epoch.
        seed: of all draws.
    """

    def __init__(self, shard_lengths: Sequence[Sequence[int]], weights: Sequence[float], count: int, seed: int) -> None:
        self.shard_lengths = [list(lengths) for lengths in shard_lengths]
        self.weights, self.count, self.seed = list(weights), count, seed
        self._restart()
        self.epoch_steps = int(self._ends[-1])

    def __getitem__(self, position: int) -> tuple[int, int, int]:
        """(dataset, shard, step within the shard) at `position` >= 0."""
        if position < self._start:
            self._restart()
        while position >= self._start + self._ends[-1]:
            self._order_until(len(self._schedule) - 1)
            self._start += int(self._ends[-1])
            self._begin(self._epoch + 1)
        number = int(np.searchsorted(self._ends, position - self._start, side="right"))
        if number < self._next and (self._epoch, number) not in self._orders:
            epoch = self._epoch
            self._restart()
            while self._epoch < epoch:
                self._order_until(len(self._schedule) - 1)
                self._start += int(self._ends[-1])
                self._begin(self._epoch + 1)
        self._order_until(number)
        dataset, shard = self._schedule[number]
        before = int(self._ends[number - 1]) if number else 0
        return dataset, shard, int(self._orders[self._epoch, number][position - self._start - before])

    def _restart(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._orders: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._start = 0
        self._begin(0)

    def _begin(self, epoch: int) -> None:
        self._epoch, self._next = epoch, 0
        self._schedule = mixture_schedule(self.shard_lengths, self.weights, self.count, self.seed, epoch)
        self._ends = np.cumsum([self.shard_lengths[dataset][shard] for dataset, shard in self._schedule])

    def _order_until(self, number: int) -> None:
        """Shuffle the shards up to `number`, in order, for they share one generator."""
        while self._next <= number:
            dataset, shard = self._schedule[self._next]
            order = np.arange(self.shard_lengths[dataset][shard])
            self._rng.shuffle(order)
            self._orders[self._epoch, self._next] = order
            self._next += 1
            while len(self._orders) > _ORDERS_KEPT:
                self._orders.popitem(last=False)
