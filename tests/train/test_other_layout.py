"""A run continues under another strategy and with another number of processes, as if it had not been interrupted."""

from __future__ import annotations

import pytest
import torch

from tests.train import jobs, ranks, toy
from vla_backend.defaults.zero_layout import CheckpointError, zero_tensors
from vla_train.checkpoint.layout import step_name

BATCH = 4  # of all processes together
GATHERED = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}
# From (strategy, processes) to (strategy, processes).
WAYS = [
    (("ddp", 1), ("ddp", 2)),
    (("ddp", 1), ("zero2", 2)),
    (("ddp", 1), ("zero3", 2)),
    (("zero2", 1), ("zero2", 2)),
    (("zero2", 2), ("zero3", 2)),
    (("zero3", 2), ("zero2", 2)),
    (("zero3", 1), ("zero3", 2)),
    (("zero2", 2), ("ddp", 1)),
    (("zero2", 2), ("zero2", 1)),
    (("zero3", 2), ("ddp", 1)),
    (("zero3", 2), ("zero2", 1)),
    (("zero3", 2), ("zero3", 1)),
    (("ddp", 2), ("zero2", 1)),
]


def _name(*parts: tuple[str, int]) -> str:
    return "-".join(f"{strategy}x{processes}" for strategy, processes in parts)


def _job(name, strategy, processes, start="", **changes):
    changes = {"parallel__strategy": strategy, "data__batch_size": BATCH // processes} | changes
    if strategy == "zero3":
        changes["parallel__deepspeed"] = GATHERED
    arguments = {"changes": changes, "model": {"counts": True}}
    if start:
        arguments["continue_from"] = f"{start}/run/checkpoints/{step_name(3)}"
    return {"name": name, "make": "tests.train.jobs:train", "arguments": arguments}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The uninterrupted runs, then those that continue them; processes are started three times in all."""
    folder = tmp_path_factory.mktemp("layouts")
    whole = {size: [(strategy, size) for strategy in ("ddp", "zero2", "zero3")] for size in (1, 2)}
    goes_on = {size: [way for way in WAYS if way[1][1] == size] for size in (1, 2)}
    frozen = {"train__freeze": ["trunk.0"]}
    half = {"parallel__mixed_precision": "bf16"}
    ranks.run_all([_job(_name(run), *run) for run in whole[1]], folder, world_size=1)
    todo = [_job(_name(run), *run) for run in whole[2]]
    todo += [_job(_name(*way), *way[1], start=_name(way[0])) for way in goes_on[2]]
    todo += [_job("frozen", "zero3", 2, **frozen)]
    todo += [_job("half", "zero2", 2, **half), _job("half-on", "zero3", 2, start="half", **half)]
    ranks.run_all(todo, folder)
    todo = [_job(_name(*way), *way[1], start=_name(way[0])) for way in goes_on[1]]
    todo += [_job("frozen-on", "ddp", 1, start="frozen", **frozen)]
    ranks.run_all(todo, folder, world_size=1)
    return folder


@pytest.mark.parametrize("way", WAYS, ids=lambda way: _name(*way))
def test_the_losses_are_those_of_the_uninterrupted_run(folder, way):
    name = _name(*way)
    ranks.report(folder, name)
    expected, got = jobs.records(folder / _name(("ddp", 1)))[3:], jobs.records(folder / name)
    assert [record["step"] for record in got] == [4, 5, 6]
    for mine, theirs in zip(expected, got, strict=True):
        for key in ("action_loss", "size_loss", "total_loss", "grad_norm", "learning_rate/head", "epoch"):
            assert theirs[key] == pytest.approx(mine[key], abs=1e-5), (mine["step"], key)
    weights = jobs.weights(folder / name, 6)
    for key, value in jobs.weights(folder / _name(("ddp", 1)), 6).items():
        torch.testing.assert_close(weights[key], value, atol=1e-5, rtol=1e-4, msg=key)


def test_optimizer_states_are_those_of_the_run_without_zero(folder):
    """Each parameter's own, and none of another's."""
    states = {}
    for strategy in ("zero2", "zero3"):
        stored = zero_tensors(folder / _name((strategy, 2)) / "run" / "checkpoints" / step_name(6))
        states[strategy] = {name: s.read() for name, s in stored.items() if name.startswith("optimizer.")}
        assert all(tuple(value.shape) == stored[name].shape for name, value in states[strategy].items())
    model = toy.ToyModel(toy.ToyConfig())
    trained = [name for name, _ in model.named_parameters() if not name.startswith("encoder")]
    wanted = {f"optimizer.{name}.{entry}" for name in trained for entry in ("step", "exp_avg", "exp_avg_sq")}
    assert set(states["zero2"]) == set(states["zero3"]) == wanted
    from safetensors import safe_open

    shard = folder / _name(("ddp", 1)) / "run" / "checkpoints" / step_name(6) / "state-00000-of-00001.safetensors"
    with safe_open(str(shard), framework="pt") as file:
        plain = {name: file.get_tensor(name) for name in file.keys() if name.startswith("optimizer.")}  # noqa: SIM118
    for name, value in plain.items():
        for strategy in states:
            torch.testing.assert_close(states[strategy][name].float(), value, atol=1e-6, rtol=1e-4, msg=name)


def test_frozen_parameters_come_along(folder):
    ranks.report(folder, "frozen-on")
    before, after = (jobs.weights(folder / name, 6) for name in ("frozen", "frozen-on"))
    assert torch.equal(before["trunk.0.weight"], after["trunk.0.weight"])
    expected, got = jobs.records(folder / "frozen")[3:], jobs.records(folder / "frozen-on")
    for mine, theirs in zip(expected, got, strict=True):
        assert theirs["total_loss"] == pytest.approx(mine["total_loss"], abs=1e-5)


def test_the_copies_that_the_forward_uses_are_set_too(folder):
    """In bfloat16 they are others than the masters: with stale ones the first loss would be that of step 1."""
    ranks.report(folder, "half-on")
    expected, got = jobs.records(folder / "half"), jobs.records(folder / "half-on")
    assert got[0]["total_loss"] == pytest.approx(expected[3]["total_loss"], rel=1e-2)
    assert got[0]["total_loss"] != pytest.approx(expected[0]["total_loss"], rel=3e-2)


def test_what_changed_is_said(folder):
    log = (folder / "rank0.log").read_text()
    assert "(step 3); 2 -> 1 processes; zero2 -> ddp" in log
    assert "(step 3); 2 -> 1 processes; zero3 -> zero2" in log


def test_a_checkpoint_that_does_not_fit_is_refused(folder, tmp_path):
    job = _job("other", "ddp", 1, start=_name(("zero2", 2)), train__freeze=["head"])["arguments"]
    (folder / "other").mkdir()
    with pytest.raises(Exception, match=r"fits no trained parameter: optimizer\.head"):
        jobs.train(folder / "other", 0, **job)
    (folder / "other2").mkdir()
    job = _job("other2", "zero2", 1, start=_name(("ddp", 1)), train__freeze=["head"])["arguments"]
    with pytest.raises(CheckpointError, match=r"tensors of the optimizer for what is not trained, e\.g\. head"):
        jobs.train(folder / "other2", 0, **job)


def test_new_ranks_draw_from_seeds_of_their_own(folder, backend):
    from vla_train.checkpoint.manifest import Manifest
    from vla_train.checkpoint.resume import Found, restore_rng
    from vla_train.train.world import World

    checkpoint = folder / _name(("ddp", 2)) / "run" / "checkpoints" / step_name(3)
    found = Found(checkpoint, Manifest.read(checkpoint))
    draws = []
    for rank in range(4):
        said = restore_rng(found, backend, World(rank, rank, 4, torch.device("cpu")), seed=42)
        assert said == "2 -> 4 processes, ranks 2 to 3 draw from new seeds"
        draws.append(torch.rand(1).item())
    assert len(set(draws)) == 4
    for rank in (2, 3):  # nor do they begin as the run's first step would
        torch.manual_seed(42 + rank)
        assert torch.rand(1).item() not in draws
    assert restore_rng(found, backend, World(3, 3, 4, torch.device("cpu")), seed=42)
    assert torch.rand(1).item() == draws[3]
