"""Two ranks, plain and under ZeRO: the numbers of one rank, and continuation to the bit."""

from __future__ import annotations

import pytest
import torch

from tests.train import jobs, ranks

STRATEGIES = ("ddp", "zero2", "zero3")
ALIKE = {"counts": True}


def _job(name, changes, **more):
    return {"name": name, "make": "tests.train.jobs:train", "arguments": {"changes": changes, "model": ALIKE} | more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every run with two ranks, in one pair of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    todo = []
    for strategy in STRATEGIES:
        plain = {"parallel__strategy": strategy, "data__batch_size": 2}
        todo.append(_job(f"{strategy}-same", plain))
        todo.append(_job(f"{strategy}-accumulated", plain | {"train__gradient_accumulation_steps": 2}))
        noisy = {"noise": True, "model": {"dropout": 0.3}}
        todo.append(_job(f"{strategy}-whole", plain, **noisy))
        start = f"{strategy}-whole/run/checkpoints/step_00000003"
        todo.append(_job(f"{strategy}-resumed", plain, continue_from=start, **noisy))
    ranks.run_all(todo, folder)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same global batches on one rank: 4 samples, and 8 for the accumulated runs."""
    folder = tmp_path_factory.mktemp("alone")
    for name, batch in (("same", 4), ("accumulated", 8)):
        (folder / name).mkdir()
        jobs.train(folder / name, 0, {"data__batch_size": batch}, ALIKE)
    return folder


@pytest.mark.parametrize("kind", ["same", "accumulated"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks_give_the_losses_of_one(folder, alone, strategy, kind):
    ranks.report(folder, f"{strategy}-{kind}")
    one, two = jobs.records(alone / kind), jobs.records(folder / f"{strategy}-{kind}")
    assert [r["step"] for r in two] == [1, 2, 3, 4, 5, 6]
    for mine, theirs in zip(one, two, strict=True):
        for name in ("action_loss", "size_loss", "total_loss", "grad_norm", "learning_rate/head"):
            assert theirs[name] == pytest.approx(mine[name], abs=1e-5), (mine["step"], name)
    weights = jobs.weights(folder / f"{strategy}-{kind}", 6)
    for name, value in jobs.weights(alone / kind, 6).items():
        torch.testing.assert_close(weights[name], value, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(folder, strategy):
    whole, resumed = f"{strategy}-whole", f"{strategy}-resumed"
    seen = [ranks.report(folder, whole, rank)["seen"] for rank in (0, 1)]
    again = [ranks.report(folder, resumed, rank)["seen"] for rank in (0, 1)]
    assert again == [s[3:] for s in seen]
    assert seen[0] != seen[1]
    expected, got = jobs.records(folder / whole)[3:], jobs.records(folder / resumed)
    assert [r["step"] for r in got] == [4, 5, 6]
    for a, b in zip(expected, got, strict=True):
        for name in ("action_loss", "size_loss", "total_loss", "grad_norm", "learning_rate/head", "epoch"):
            assert a[name] == b[name], (a["step"], name)
    left, right = jobs.weights(folder / whole, 6), jobs.weights(folder / resumed, 6)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert not torch.equal(left["head.weight"], jobs.weights(folder / whole, 3)["head.weight"])
