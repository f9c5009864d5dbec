"""From a dataset to this rank's batches: sharded, resumable, loaded by worker processes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, cast

import psutil
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from vla_backend import Backend
from vla_train.data.errors import DataError

log = logging.getLogger(__name__)

Position = dict[str, int]


class TrainingDataset(Protocol):
    """What the engine needs of a model's dataset: map-style, with a sampling map per epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def set_epoch(self, epoch: int) -> None: ...


class RankBatches(Sampler[list[tuple[int, int]]]):
    """The endless order of one rank's batches, as lists of (epoch, index).

    Step s of an epoch covers the indices [s G, (s + 1) G) with G = batch_size * world_size; rank r takes the r-th
    slice of batch_size. So every index goes to exactly one rank, and the global batch does not depend on how many
    ranks share it. The tail of an epoch that does not fill a global batch is left out.

    Args:
        length: samples per epoch.
        batch_size: samples per rank and step.
        rank: this process.
        world_size: number of processes.

    Raises:
        DataError: an epoch is smaller than one global batch.
    """

    def __init__(self, length: int, batch_size: int, rank: int, world_size: int) -> None:
        self.length, self.batch_size, self.rank, self.world_size = length, batch_size, rank, world_size
        self.global_batch = batch_size * world_size
        self.steps_per_epoch = length // self.global_batch
        if not self.steps_per_epoch:
            raise DataError(
                f"{length} samples do not fill one global batch",
                why=f"data.batch_size={batch_size} on {world_size} processes needs {self.global_batch}",
                fix="lower data.batch_size, use fewer processes, or add data",
            )
        self.start = 0

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        step = self.start
        while True:
            epoch, within = divmod(step, self.steps_per_epoch)
            first = within * self.global_batch + self.rank * self.batch_size
            yield [(epoch, index) for index in range(first, first + self.batch_size)]
            step += 1


class _AtEpoch(Dataset[Any]):
    """Lets the index carry the epoch, so that workers that live through many epochs (and prefetch across their
    borders) always read the right sampling map."""

    def __init__(self, dataset: TrainingDataset) -> None:
        self.dataset = dataset
        self._epoch: int | None = None

    def __getitems__(self, items: list[tuple[int, int]]) -> list[Any]:
        """A batch, which a dataset may read in one go; it lies within one epoch."""
        if not hasattr(self.dataset, "__getitems__"):
            return [self[item] for item in items]
        self._set_epoch(items[0][0])
        found: list[Any] = self.dataset.__getitems__([index for _, index in items])
        return found

    def __getitem__(self, item: tuple[int, int]) -> Any:
        epoch, index = item
        self._set_epoch(epoch)
        return self.dataset[index]

    def _set_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self.dataset.set_epoch(epoch)
            self._epoch = epoch


class TrainLoader:
    """An endless iterator over this rank's batches that knows its position.

    `position` counts batches handed out, not batches prefetched: saved after a training step and given back as
    `start_position`, the next batch is the one that would have followed.

    Attributes:
        awaited: after a worker died, the samples that were being loaded: "epoch", "index" and "sample_id", which is
            what the dataset's `sample_id(index)` answers if it has one.
    """

    def __init__(self, loader: DataLoader[Any], order: RankBatches, steps_done: int) -> None:
        self._loader, self._order, self._steps = loader, order, steps_done
        self._batches: Iterator[Any] | None = None
        self.awaited: list[dict[str, Any]] = []

    @property
    def steps_per_epoch(self) -> int:
        """Batches of this rank in one epoch."""
        return self._order.steps_per_epoch

    @property
    def epoch(self) -> int:
        """Epoch of the next batch."""
        return self._steps // self.steps_per_epoch

    def position(self) -> Position:
        """Where the next batch starts; equal on all ranks, JSON-able."""
        epoch, within = divmod(self._steps, self.steps_per_epoch)
        return {"epoch": epoch, "samples": within * self._order.global_batch, "epoch_length": self._order.length}

    def __iter__(self) -> TrainLoader:
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            self._order.start = self._steps
            self._batches = iter(self._loader)
        try:
            batch = next(self._batches)
        except RuntimeError as error:
            self.close()
            died = _dead_worker(error)
            if died:
                raise died from error
            raise
        self._steps += 1
        return batch

    def death(self, error: BaseException) -> DataError | None:
        """The death of a worker that `error` comes from; torch raises it wherever the trainer is at that moment."""
        cause: BaseException | None = error
        while cause is not None:
            died = _dead_worker(cause) if isinstance(cause, RuntimeError) else None
            if died:
                self.awaited = self.awaited or self._being_loaded()
                return died
            cause = cause.__cause__ or cause.__context__
        return None

    def _being_loaded(self) -> list[dict[str, Any]]:
        """The samples of the next batch and of those loaded ahead of it: epoch, index and, if the dataset tells, id."""
        ahead = max(1, self._loader.num_workers * (self._loader.prefetch_factor or 1))
        self._order.start = self._steps
        items = [item for batch in islice(self._order, ahead) for item in batch]
        return [{"epoch": epoch, "index": index, "sample_id": self._name(epoch, index)} for epoch, index in items]

    def _name(self, epoch: int, index: int) -> str:
        dataset = cast("_AtEpoch", self._loader.dataset).dataset
        if not hasattr(dataset, "sample_id"):
            return f"epoch {epoch} index {index}"
        dataset.set_epoch(epoch)
        return str(dataset.sample_id(index))

    def close(self) -> None:
        """Stop the workers; iterating again starts new ones at the current position."""
        self._batches = None


def build_loader(
    dataset: TrainingDataset,
    collate: Callable[[list[Any]], Any],
    config: Any,
    backend: Backend,
    rank: int = 0,
    world_size: int = 1,
    start_position: Mapping[str, int] | None = None,
) -> TrainLoader:
    """The training batches of one rank.

    Args:
        dataset: the model's dataset; picklable.
        collate: the model's collate function, run on the worker; picklable.
        config: complete configuration; `config.data` is read.
        backend: answers whether to pin, how workers start and how many there are.
        rank: this process.
        world_size: number of processes.
        start_position: what `TrainLoader.position` returned; null = the beginning. Another batch size or number of
            processes is allowed; if the position then falls inside a global batch, that batch is read again.

    Raises:
        DataError: an epoch is smaller than one global batch, or the position belongs to other data.
    """
    data = config.data
    order = RankBatches(len(dataset), int(data.batch_size), rank, world_size)
    defaults = backend.dataloader_defaults
    workers = defaults.num_workers if data.num_workers == "auto" else int(data.num_workers)
    parallel: dict[str, Any] = {}
    if workers:
        parallel = {
            "multiprocessing_context": defaults.start_method,
            "prefetch_factor": data.prefetch_factor or defaults.prefetch_factor,
        }
    loader: DataLoader[Any] = DataLoader(
        _AtEpoch(dataset),
        batch_sampler=order,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=backend.pin_memory_ok,
        # Workers draw no random numbers; a generator of their own keeps torch's global state out of the loader.
        generator=torch.Generator().manual_seed(0),
        **parallel,
    )
    return TrainLoader(loader, order, _steps_done(order, start_position))


def _steps_done(order: RankBatches, position: Mapping[str, int] | None) -> int:
    if not position:
        return 0
    if position["epoch_length"] != order.length:
        raise DataError(
            "the data is not what it was when the checkpoint was written",
            why=f"an epoch had {position['epoch_length']} samples then and has {order.length} now",
            fix="restore the datasets and data.* settings, or start from the weights alone (train.resume=never)",
        )
    steps, rest = divmod(position["samples"], order.global_batch)
    if rest:
        log.warning("the saved position lies %d samples inside a global batch; they are read again", rest)
    return position["epoch"] * order.steps_per_epoch + min(steps, order.steps_per_epoch)


def _dead_worker(error: RuntimeError) -> DataError | None:
    text = str(error)
    if not re.search(r"DataLoader worker .*(exited unexpectedly|is killed by signal)", text):
        return None
    free = psutil.virtual_memory().available / 2**30
    return DataError(
        "a data worker died",
        why=f"{text.splitlines()[0].rstrip()}; {free:.1f} GiB of memory are free now",
        fix="mostly the memory ran out: lower data.num_workers or data.prefetch_factor; "
        "data.num_workers=0 loads in the trainer and shows an error of the decoder directly",
    )
