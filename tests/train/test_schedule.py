"""Learning rates against upstream's table, and floors that hold per group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import get_scheduler

from vla_train.config.schema import SchedulerConfig
from vla_train.train.errors import TrainError
from vla_train.train.schedule import build_schedule, fast_forward

TABLE = json.loads((Path(__file__).parents[1] / "data" / "train" / "learning_rates.json").read_text())


def _build(floor="group", name="cosine_with_min_lr", arguments=None, **lengths):
    rates = TABLE["rates"]
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates.values()]
    optimizer = torch.optim.AdamW(groups, lr=rates["base"])
    sizes = {"warmup_steps": TABLE["warmup_steps"], "max_steps": TABLE["max_steps"]} | lengths
    schedule = build_schedule(optimizer, SchedulerConfig(name, TABLE["min_lr"], floor, arguments or {}), **sizes)
    return optimizer, schedule


def _rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def _walk(optimizer, schedule, steps):
    found = {}
    for step in range(steps + 1):
        found[step] = _rates(optimizer)
        optimizer.step()
        schedule.step()
    return found


def test_upstreams_rates_to_the_bit():
    found = _walk(*_build("base"), 1100)
    for step, rates in TABLE["learning_rates"].items():
        assert found[int(step)] == rates, step


def test_every_group_ends_at_the_floor():
    found = _walk(*_build("group"), 1000)
    assert found[1000] == pytest.approx([TABLE["min_lr"]] * 2, rel=1e-9)
    assert found[50] == list(TABLE["rates"].values())
    # The base group's ratio is the same under both rules.
    assert [rates[0] for rates in found.values()] == [rates[0] for rates in _walk(*_build("base"), 1000).values()]


@pytest.mark.parametrize("step", [0, 1, 49, 50, 777])
def test_fast_forward_equals_walking(step):
    walked, walked_schedule = _build()
    expected = _walk(walked, walked_schedule, step + 3)
    optimizer, schedule = _build()
    fast_forward(schedule, step)
    assert _rates(optimizer) == expected[step]
    assert schedule.get_last_lr() == expected[step]
    for later in range(step + 1, step + 4):
        optimizer.step()
        schedule.step()
        assert _rates(optimizer) == expected[later]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("linear", {}),
        ("cosine", {"num_cycles": 0.75}),
        ("cosine_with_restarts", {"num_cycles": 3}),
        ("polynomial", {"power": 2.0, "lr_end": 1e-6}),
        ("inverse_sqrt", {"timescale": 40}),
        ("cosine_with_min_lr", {"min_lr_rate": 0.2}),
        ("warmup_stable_decay", {"num_decay_steps": 300, "decay_type": "linear"}),
    ],
)
def test_arguments_reach_the_library(name, arguments):
    optimizer, _ = _build("base")
    sizes = (TABLE["warmup_steps"], TABLE["max_steps"])
    expected = _walk(optimizer, get_scheduler(name, optimizer, *sizes, scheduler_specific_kwargs=dict(arguments)), 1000)
    assert _walk(*_build("base", name, arguments), 1000) == expected


def test_other_schedules_and_mistakes():
    assert _walk(*_build(name="constant_with_warmup"), 60)[60] == list(TABLE["rates"].values())
    with pytest.raises(TrainError, match="cosine_with_min_lr"):
        _build(name="cosine_with_minlr")
    with pytest.raises(TrainError, match="depends on more than the step"):
        _build(name="reduce_lr_on_plateau")
    with pytest.raises(TrainError, match=r"num_cycle, which 'cosine(?s:.*)it takes: num_cycles"):
        _build(name="cosine_with_restarts", arguments={"num_cycle": 3})
    with pytest.raises(TrainError, match="group, base"):
        _build(floor="none")
