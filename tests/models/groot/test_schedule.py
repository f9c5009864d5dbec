"""Shards and the order of a mixture against recordings of the published implementation."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from vla_groot.schedule import mixture_schedule, mixture_steps, own_part, shard_steps
from vla_groot.sources import merge_relative
from vla_groot.stream import StepStream
from vla_train.data.statistics import merge_statistics


@pytest.fixture
def recorded(facts):
    return facts("dataset")


def test_shards(recorded):
    for case, wanted in recorded["single_step_sharding"].items():
        lengths, size, rate, horizon = json.loads(case)
        found = shard_steps(lengths, size, rate, horizon, 42)
        assert [[[episode, steps.tolist()] for episode, steps in shard] for shard in found] == wanted["shards"], case
        assert [sum(len(steps) for _, steps in shard) for shard in found] == wanted["shard_lengths"]


@pytest.mark.parametrize("seed", [42, 7])
def test_schedule_and_its_parts(recorded, seed):
    wanted = recorded["schedule"][f"seed={seed}"]
    arguments = (recorded["shard_lengths"], recorded["weights"], recorded["num_shards_per_epoch"], seed)
    first, second = (mixture_schedule(*arguments, epoch) for epoch in range(2))
    assert [list(pair) for pair in first] == wanted["epoch0"]
    assert [list(pair) for pair in second] == wanted["epoch1"]
    for name, part in wanted["partition"].items():
        world, rank, workers = (int(value.split("=")[1]) for value in name.split(","))
        found = own_part(first, rank * workers, world * workers)
        assert [list(pair) for pair in found] == part


def test_steps_across_epochs(recorded):
    for seed, name in ((42, "iterate_seed42_6shards_first160"), (1042, "iterate_after_reset_seed1042_first60")):
        wanted = recorded[name]
        steps = mixture_steps(recorded["shard_lengths"], recorded["weights"], 6, seed)
        assert [list(step) for step in islice(steps, len(wanted))] == wanted
        stream = StepStream(recorded["shard_lengths"], recorded["weights"], 6, seed)
        assert [list(stream[position]) for position in range(len(wanted))] == wanted


def test_stream_from_anywhere(recorded):
    wanted = recorded["iterate_seed42_6shards_first160"]
    arguments = (recorded["shard_lengths"], recorded["weights"], 6, 42)
    assert list(StepStream(*arguments)[150]) == wanted[150]
    stream = StepStream(*arguments)
    for position in (100, 3, 159, 40, 41, 0, 158):
        assert list(stream[position]) == wanted[position], position


def test_stream_far_away_and_back():
    stream = StepStream([[3] * 200], [1.0], 150, 0)
    far = [stream[position] for position in (440, 449, 451)]
    assert stream[2] == next(islice(mixture_steps([[3] * 200], [1.0], 150, 0), 2, None))
    everything = list(islice(mixture_steps([[3] * 200], [1.0], 150, 0), 452))
    assert far == [everything[position] for position in (440, 449, 451)]


def test_merged_statistics(recorded):
    merge = recorded["merge"]
    found = merge_statistics(merge["inputs"], merge["weights"])
    for key, entry in merge["output"].items():
        for name, values in entry.items():
            np.testing.assert_allclose(found[key][name], values, atol=1e-9)


def test_merged_statistics_per_step(recorded):
    merge = recorded["merge"]
    stacked = [
        {key: {n: [v, v] for n, v in entry.items()} for key, entry in stats.items()} for stats in merge["inputs"]
    ]
    found = merge_relative(stacked, merge["weights"])
    for key, entry in merge["output"].items():
        np.testing.assert_allclose(found[key]["std"], [entry["std"]] * 2, atol=1e-9)
