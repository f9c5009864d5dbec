"""Two ranks, plain and under ZeRO: the losses of one rank with the same global batch, and continuation to the bit."""

from __future__ import annotations

import pytest
import torch

from tests.models.groot import jobs
from tests.train import ranks

STRATEGIES = ("ddp", "zero2", "zero3")
#: What is trained: the action head alone, as published; or everything.
TUNED = {"head": [], "whole": ["model.tune_llm=true", "model.tune_visual=true"]}
CASES = (("ddp", "whole"), ("zero2", "head"), ("zero2", "whole"), ("zero3", "whole"))


def _job(name, settings, **more):
    return {"name": name, "make": "tests.models.groot.jobs:train", "arguments": {"settings": settings} | more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every run with two ranks, in one pair of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    todo = []
    for strategy in STRATEGIES:
        plain = [f"parallel.strategy={strategy}", "data.batch_size=2"]
        for tuned in (tuned for other, tuned in CASES if other == strategy):
            todo.append(_job(f"{strategy}-{tuned}", [*plain, *TUNED[tuned]], alike=True))
        flags = [*plain, "model.tune_top_llm_layers=1", "model.architecture.diffusion_model_cfg.dropout=0.2"]
        todo.append(_job(f"{strategy}-straight", flags))
        start = f"{strategy}-straight/run/checkpoints/step_00000002"
        todo.append(_job(f"{strategy}-resumed", flags, continue_from=start))
    ranks.run_all(todo, folder)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same global batches on one rank."""
    folder = tmp_path_factory.mktemp("alone")
    for tuned, flags in TUNED.items():
        (folder / tuned).mkdir()
        jobs.train(folder / tuned, 0, ["data.batch_size=4", *flags], alike=True)
    return folder


@pytest.mark.parametrize(("strategy", "tuned"), CASES)
def test_two_ranks_give_the_losses_of_one(folder, alone, strategy, tuned):
    seen = [ranks.report(folder, f"{strategy}-{tuned}", rank)["seen"] for rank in (0, 1)]
    assert all(set(mine).isdisjoint(theirs) for mine, theirs in zip(*seen, strict=True))
    one, two = jobs.records(alone / tuned), jobs.records(folder / f"{strategy}-{tuned}")
    assert [record["step"] for record in two] == [1, 2, 3, 4]
    for mine, theirs in zip(one, two, strict=True):
        assert theirs["action_loss"] == pytest.approx(mine["action_loss"], abs=1e-4), mine["step"]
        assert theirs["grad_norm"] == pytest.approx(mine["grad_norm"], rel=1e-3), mine["step"]
    assert len({round(record["action_loss"], 4) for record in one}) == 4


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(folder, strategy):
    straight, resumed = f"{strategy}-straight", f"{strategy}-resumed"
    for rank in (0, 1):
        whole = ranks.report(folder, straight, rank)["seen"]
        assert ranks.report(folder, resumed, rank)["seen"] == whole[2:]
    expected, found = jobs.records(folder / straight)[2:], jobs.records(folder / resumed)
    assert [(r["step"], r["action_loss"], r["grad_norm"]) for r in found] == [
        (r["step"], r["action_loss"], r["grad_norm"]) for r in expected
    ]
    left, right = jobs.weights(folder / straight, 4), jobs.weights(folder / resumed, 4)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    before = jobs.weights(folder / straight, 2)
    assert any(not torch.equal(left[name], before[name]) for name in left)
