"""Which steps form a shard, and in which order the shards of a mixture are read. Exactly as published trainings did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

Part = tuple[int, np.ndarray]


def shard_steps(
    lengths: Sequence[int], shard_size: int, sampling_rate: float, horizon: int, seed: int
) -> list[list[Part]]:
    """Steps of one dataset in shards of about equal size.

    Every episode's usable steps are shuffled and dealt into int(1 / sampling_rate) parts, which are spread over the
    shards; so a shard touches few episodes, each with some of its steps.

    Args:
        lengths: steps of every episode.
        shard_size: steps of a shard aimed at.
        sampling_rate: share of an episode's steps in one part.
        horizon: steps a sample needs from its first action to its last.
        seed: of the shuffling.

    Returns:
        Shards of (episode, steps) parts.
    """
    rng = np.random.default_rng(seed)
    parts: list[Part] = []
    for episode in rng.permutation(len(lengths)):
        usable = np.arange(max(0, lengths[episode] - horizon + 1))
        rng.shuffle(usable)
        count = int(1 / sampling_rate)
        parts += [(int(episode), usable[start::count]) for start in range(count)]
    parts = [part for part in parts if len(part[1])]
    total = sum(len(steps) for _, steps in parts)
    shards = min(math.ceil(total / shard_size), len(parts))
    found: list[list[Part]] = [[] for _ in range(shards)]
    sizes = np.zeros(shards, dtype=np.int64)
    for index, part in enumerate(parts):
        shard = index if index < shards else int(np.argmin(sizes))
        found[shard].append(part)
        sizes[shard] += len(part[1])
    return found


def mixture_schedule(
    shard_lengths: Sequence[Sequence[int]], weights: Sequence[float], count: int, seed: int, epoch: int
) -> list[tuple[int, int]]:
    """(dataset, shard) pairs of one epoch.

    Datasets are drawn with probability weight / mean shard length, so that steps follow the weights; the shards of a
    dataset come in a shuffled order that is drawn anew when it is used up.

    Args:
        shard_lengths: steps of every shard of every dataset.
        weights: of the datasets.
        count: shards of an epoch.
        seed, epoch: of the draws.
    """
    rng = np.random.default_rng(seed + epoch)
    share = np.asarray([weight / np.mean(lengths) for weight, lengths in zip(weights, shard_lengths, strict=True)])
    share = share / share.sum()
    datasets = rng.choice(len(shard_lengths), size=count, p=share)
    waiting: list[list[int]] = []
    for lengths in shard_lengths:
        order = list(range(len(lengths)))
        rng.shuffle(order)
        waiting.append(order)
    schedule = []
    for dataset in datasets:
        if not waiting[dataset]:
            order = list(range(len(shard_lengths[dataset])))
            rng.shuffle(order)
            waiting[dataset] = order
        schedule.append((int(dataset), int(waiting[dataset].pop(0))))
    return schedule


def own_part(schedule: Sequence[tuple[int, int]], index: int, count: int) -> list[tuple[int, int]]:
    """The shards of reader `index` of `count`."""
    return list(schedule[index::count])


def mixture_steps(
    shard_lengths: Sequence[Sequence[int]],
    weights: Sequence[float],
    count: int,
    seed: int,
    *,
    index: int = 0,
    readers: int = 1,
) -> Iterator[tuple[int, int, int]]:
    """(dataset, shard, step within the shard) without end, one epoch after the other.

    Inside a shard the steps are shuffled; the generator of that is made once, not per epoch.
    """
    rng, epoch = np.random.default_rng(seed), 0
    while True:
        for dataset, shard in own_part(mixture_schedule(shard_lengths, weights, count, seed, epoch), index, readers):
            order = np.arange(shard_lengths[dataset][shard])
            rng.shuffle(order)
            for step in order:
                yield dataset, shard, int(step)
        epoch += 1
