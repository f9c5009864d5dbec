from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from vla_backend import LoaderDefaults
from vla_dit4dit.data.batch import collate
from vla_dit4dit.data.dataset import build_dataset
from vla_train.data import episode_tables, video
from vla_train.data.errors import DataError
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.loader import RankBatches, build_loader


class Numbers:
    """Sample i of epoch e is (e, i)."""

    def __init__(self, length: int) -> None:
        self.length, self.epoch = length, 0

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.epoch, index


class Dying(Numbers):
    def __getitem__(self, index: int) -> tuple[int, int]:
        os._exit(1)


class Failing(Numbers):
    def __getitem__(self, index: int) -> tuple[int, int]:
        raise DataError("cannot decode x.mp4", why="it is damaged", fix="copy it again")


def keep(samples: list[Any]) -> list[Any]:
    return samples


def settings(batch_size: int, workers: Any = 0) -> Any:
    return SimpleNamespace(data=SimpleNamespace(batch_size=batch_size, num_workers=workers, prefetch_factor=None))


def answers(start_method: Any) -> Any:
    return SimpleNamespace(
        pin_memory_ok=False, dataloader_defaults=LoaderDefaults(start_method=start_method, num_workers=1)
    )


@pytest.fixture
def backend():
    return answers("fork")  # starts workers at once; the way users start them is tested below


def take(loader: Any, count: int) -> list[Any]:
    return [next(loader) for _ in range(count)]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_share_an_epoch_without_gap_or_overlap(backend, world_size):
    loaders = [build_loader(Numbers(25), keep, settings(4), backend, rank, world_size) for rank in range(world_size)]
    steps = loaders[0].steps_per_epoch
    assert steps == 25 // (4 * world_size)
    for epoch in range(2):
        seen = [item for _ in range(steps) for loader in loaders for item in next(loader)]
        assert seen == [(epoch, index) for index in range(steps * 4 * world_size)]


def test_global_batch_does_not_depend_on_the_number_of_ranks(backend):
    single = build_loader(Numbers(50), keep, settings(8), backend)
    pair = [build_loader(Numbers(50), keep, settings(4), backend, rank, 2) for rank in range(2)]
    for _ in range(15):
        assert next(single) == next(pair[0]) + next(pair[1])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [3, 6, 7])
def test_resume_continues_exactly(backend, done, workers):
    first = build_loader(Numbers(25), keep, settings(4, workers), backend)
    take(first, done)
    position, expected = first.position(), take(first, 8)
    second = build_loader(Numbers(25), keep, settings(4, workers), backend, start_position=position)
    assert second.epoch == done // 6
    assert second.position() == position
    assert take(second, 8) == expected
    first.close()
    second.close()


def test_position_ignores_prefetched_batches(backend):
    loader = build_loader(Numbers(40), keep, settings(4, 2), backend)
    take(loader, 2)
    assert loader.position() == {"epoch": 0, "samples": 8, "epoch_length": 40}
    loader.close()
    assert next(loader)[0] == (0, 8)
    loader.close()


def test_resume_with_other_world_size(backend):
    first = build_loader(Numbers(48), keep, settings(4), backend, 0, 2)
    take(first, 2)
    second = build_loader(Numbers(48), keep, settings(4), backend, start_position=first.position())
    assert next(second)[0] == (0, 16)
    third = build_loader(Numbers(48), keep, settings(5), backend, start_position=first.position())
    assert next(third)[0] == (0, 15)


def test_resume_on_other_data(backend):
    first = build_loader(Numbers(48), keep, settings(4), backend)
    with pytest.raises(DataError, match="an epoch had 48 samples then and has 40 now"):
        build_loader(Numbers(40), keep, settings(4), backend, start_position=first.position() | {"samples": 4})


def test_epoch_smaller_than_a_global_batch():
    with pytest.raises(DataError, match=r"data.batch_size=8 on 2 processes needs 16"):
        RankBatches(15, 8, 0, 2)


def test_a_dead_worker_is_named(backend):
    loader = build_loader(Dying(40), keep, settings(4, 1), backend)
    with pytest.raises(DataError, match=r"(?s)a data worker died.*data\.num_workers"):
        next(loader)


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_a_worker_that_is_killed_ends_the_run_soon(start_method):
    loader = build_loader(Numbers(4000), keep, settings(4, 1), answers(start_method))
    take(loader, 3)
    before = multiprocessing.active_children()
    assert len(before) == 1
    os.kill(before[0].pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(DataError, match=r"(?s)a data worker died.*killed|exited.*GiB of memory.*data\.num_workers"):
        take(loader, 100)
    assert time.monotonic() - started < 60
    loader.close()


def test_memory_stays_flat(copy_set, pyav, monkeypatch):
    """Every window opens other files here: what is closed and forgotten must give its memory back at once."""
    monkeypatch.setattr(video, "_READERS_KEPT", 1)
    monkeypatch.setattr(episode_tables, "_BYTES_KEPT", 1)
    dataset = LeRobotDataset(copy_set("first"))
    clips = [dataset.files.video(i, feature) for i in (0, 1) for feature in dataset.modality.video.values()]

    def read(count: int) -> int:
        for number in range(count):
            dataset.table(dataset.listed[number % 2])
            video.read_clip(clips[number % 4], [0.0, 0.3], pyav)
        return psutil.Process().memory_info().rss

    gc.disable()  # else the collector would hide what waits for it
    try:
        before = read(40)
        assert read(200) - before < 6 * 2**20
    finally:
        gc.enable()


def test_a_worker_error_keeps_its_message(backend):
    loader = build_loader(Failing(40), keep, settings(4, 1), backend)
    with pytest.raises(DataError, match=r"(?s)cannot decode x\.mp4.*fix: copy it again"):
        next(loader)


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_workers_return_what_the_trainer_would_load(config, pyav, start_method):
    """Through workers that import everything anew, across an epoch border, with the default number of workers."""
    backend = answers(start_method)
    options = config(batch_size=16, num_workers="auto", image_size=[32, 32])
    dataset = build_dataset(options, pyav)
    loaded = take(build_loader(dataset, collate, options, backend), 3)
    options.data.num_workers = 0
    for batch, expected in zip(loaded, take(build_loader(dataset, collate, options, backend), 3), strict=True):
        assert batch["sample_ids"] == expected["sample_ids"]
        assert torch.equal(batch["images"], expected["images"])
        assert torch.equal(batch["action"], expected["action"])
    assert loaded[0]["sample_ids"] != loaded[2]["sample_ids"]  # epoch 1 draws anew


def test_upstream_epochs_repeat_when_asked(config, backend, pyav):
    options = config(batch_size=20, num_workers=0, image_size=[16, 16], reshuffle_each_epoch=False)
    loader = build_loader(build_dataset(options, pyav), collate, options, backend)
    first, _, again = take(loader, 3)
    assert first["sample_ids"] == again["sample_ids"]
