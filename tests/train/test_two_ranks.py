"""Two ranks, plain and under ZeRO: the numbers of one rank, and continuation to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.train import golden, jobs, ranks
from vla_train.checkpoint.weights import consolidated

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
        golden_run = {"strategy": strategy, "batch_size": 1}
        todo.append({"name": f"{strategy}-golden", "make": "tests.train.golden:replay", "arguments": golden_run})
        half = {"model": {"half_weights": True, "expect_autocast": "bfloat16"}}
        todo.append(_job(f"{strategy}-bf16", plain | {"parallel__mixed_precision": "bf16"}, **half))
        todo.append(_job(f"{strategy}-signal", plain | {"train__max_steps": 50}, signal_rank=1, signal_step=4))
    todo.append(_job("zero3-half", plain, model={"half_weights": True}))
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


@pytest.fixture(scope="module")
def golden_alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    torch.set_num_threads(1)
    return folder, golden.replay(folder, 0, "ddp", 2)


def _close_to_upstream(report, folder):
    tensors, log = golden.recorded()
    for record, upstream in zip(report["records"], log, strict=False):
        metrics = upstream["metrics"]
        assert record["action_loss"] == pytest.approx(metrics["action_dit_loss"], rel=1e-5)
        assert record["future_video_loss"] == pytest.approx(metrics["future_video_loss"], rel=1e-5)
        assert record["total_loss"] == pytest.approx(metrics["total_loss"], rel=1e-5)
        assert record["grad_norm"] == pytest.approx(upstream["grad_norm_before_clip"], rel=1e-4)
        rates = [record[f"learning_rate/{name}"] for name in ("backbone_interface", "action_model")]
        assert rates == pytest.approx(upstream["lr_used"], rel=1e-12)
    weights = consolidated(Path(report["checkpoint"]))
    watched = {key.split(".param.", 1)[1]: value for key, value in tensors.items() if key.startswith("step2.param.")}
    assert len(watched) == 4
    for name, value in watched.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6, msg=name)
    exported = torch.load(folder / "exported" / "checkpoints" / "steps_3_pytorch_model.pt", weights_only=True)
    assert len(exported) == 359
    for name, value in watched.items():
        torch.testing.assert_close(exported[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_recorded_steps_of_upstream_on_one_rank(golden_alone):
    folder, report = golden_alone
    _close_to_upstream(report, folder)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_recorded_steps_of_upstream_on_two_ranks(folder, golden_alone, strategy):
    reports = [ranks.report(folder, f"{strategy}-golden", rank) for rank in (0, 1)]
    _close_to_upstream(reports[0], folder / f"{strategy}-golden")
    # Nothing may make transformers shard a model while it is built.
    assert not any(report["sharded_at_birth"] for report in reports)
    shards = list(Path(reports[0]["checkpoint"]).rglob("*optim_states.pt"))
    assert len(shards) == (0 if strategy == "ddp" else 2)
    alone = golden_alone[1]
    # The actions after three steps, and a step after the evaluation, which ZeRO-3 must survive.
    for report in reports:
        assert report["actions"] == pytest.approx(alone["actions"], abs=1e-5)
    assert reports[0]["records"][3]["total_loss"] == pytest.approx(alone["records"][3]["total_loss"], rel=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bfloat16_with_weights_stored_in_two_dtypes(folder, strategy):
    """Autocast reaches the forward through every engine, and the master weights are float32."""
    ranks.report(folder, f"{strategy}-bf16")
    losses = [record["total_loss"] for record in jobs.records(folder / f"{strategy}-bf16")]
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    weights = jobs.weights(folder / f"{strategy}-bf16", 6)
    assert {value.dtype for value in weights.values()} == {torch.float32}


def test_zero3_trains_weights_stored_in_two_dtypes_in_float32(folder):
    ranks.report(folder, "zero3-half")
    assert len(jobs.records(folder / "zero3-half")) == 6


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_signal_on_one_rank_stops_both_with_a_checkpoint(folder, strategy):
    first, second = (ranks.report(folder, f"{strategy}-signal", rank) for rank in (0, 1))
    assert first["step"] == second["step"]
    assert 4 <= first["step"] <= 6
    assert (first["interrupted"], second["interrupted"]) == ("a signal on another rank", "SIGTERM")
    assert jobs.weights(folder / f"{strategy}-signal", first["step"])


def test_nothing_is_compiled_and_nobody_warns_each_step(folder):
    log = (folder / "rank0.log").read_text()
    assert "built successfully" not in log
    assert "is deprecated" not in log
