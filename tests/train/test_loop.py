"""What the loop does around the model: logs, weights, signals, losses that are not finite."""

from __future__ import annotations

import datetime
import json
import math
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from tests.train import jobs, toy
from vla_train.train.errors import NonFiniteLoss, TrainError
from vla_train.train.loop import Trainer
from vla_train.train.run import run
from vla_train.train.setup import set_up
from vla_train.train.strategy import autocast_inside
from vla_train.train.world import World
from vla_train.train.zero import _groups_with_timeout


def _train(root, backend, prepared=lambda parts: None, evaluate=None, **changes):
    return run(toy.config(root, **changes), toy.entry, backend, prepared=prepared, evaluate=evaluate)


def _world(backend):
    return World(0, 0, 1, backend.collective_device)


def test_what_a_run_leaves(tmp_path, backend, capfd):
    _train(tmp_path, backend, run__loggers=["jsonl", "tensorboard"])
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        "checkpoints",
        "config.yaml",
        "dataset_statistics.json",
        "decisions.json",
        "metrics.jsonl",
        "plots",
        "ranks",
        "tb",
    }
    assert (folder / "plots" / "loss.png").stat().st_size > 5000
    assert any((folder / "tb").iterdir())
    decisions = json.loads((folder / "decisions.json").read_text())
    assert decisions["backend"] == "cpu"
    assert decisions["providers"]["dist_backend"] == "cpu"
    assert decisions["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert decisions["groups"]["head"]["values"] == 8 * 6 + 6
    assert decisions["frozen"] == {"encoder": "cpu"}
    said = capfd.readouterr().out
    assert "done at step 6, loss" in said
    assert str(folder / "checkpoints" / "step_00000006") in said
    record = jobs.records(tmp_path)[-1]
    assert {"step", "epoch", "action_loss", "size_loss", "total_loss", "grad_norm", "data_time", "model_time"} < set(
        record
    )
    assert {"learning_rate/head", "learning_rate/base", "memory_allocated", "samples_per_second"} < set(record)
    assert record["total_loss"] == pytest.approx(record["action_loss"] + record["size_loss"])
    assert record["epoch"] == 0.6


def test_log_lines_are_means_over_their_interval(tmp_path, backend):
    _train(tmp_path / "each", backend)
    _train(tmp_path / "third", backend, train__log_interval=4)
    each, some = jobs.records(tmp_path / "each"), jobs.records(tmp_path / "third")
    assert [record["step"] for record in some] == [4, 6]
    for record, part in zip(some, (each[:4], each[4:]), strict=True):
        assert record["total_loss"] == pytest.approx(sum(r["total_loss"] for r in part) / len(part), rel=1e-6)


def test_weights_of_losses(tmp_path, backend):
    _train(tmp_path, backend, train__loss_weights={"size_loss": 3.0})
    for record in jobs.records(tmp_path):
        assert record["total_loss"] == pytest.approx(record["action_loss"] + 3 * record["size_loss"], rel=1e-6)
    with pytest.raises(TrainError, match=r"video_loss.*\n.*action_loss, size_loss"):
        _train(tmp_path / "2", backend, train__loss_weights={"video_loss": 0.1})


class Synchronisations(TorchDispatchMode):
    """Counts reads of a value from the device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
            type(self).count += 1
        return func(*args, **(kwargs or {}))


def test_only_logging_steps_wait_for_the_device(tmp_path, backend):
    # AdamW reads its step counters, which live on the host.
    config = toy.config(tmp_path, train__gradient_accumulation_steps=2)
    config.train.optimizer.name = "SGD"
    trainer = Trainer(set_up(config, toy.entry, backend, _world(backend)))
    trainer.one_step(log=True)
    with Synchronisations():
        Synchronisations.count = 0
        trainer.one_step(log=False)
        assert Synchronisations.count == 0
        trainer._log_step({"base": 0.0}, torch.ones(()))
        assert Synchronisations.count > 0


@pytest.mark.parametrize("interval", [1, 5])
def test_a_loss_that_is_not_finite_names_the_samples(tmp_path, backend, interval):
    def poison(parts):
        parts.model.config.poison_at = 21

    with pytest.raises(NonFiniteLoss, match=r"Step 1, rank 0: action_loss is nan, total_loss is nan") as error:
        _train(tmp_path, backend, poison, train__log_interval=interval)
    assert "toy/0, toy/7, toy/14, toy/21" in str(error.value)
    saved = json.loads((tmp_path / "run" / "nonfinite_loss_rank0.json").read_text())
    assert saved["sample_ids"] == ["toy/0", "toy/7", "toy/14", "toy/21"]
    assert saved["step"] == 1
    # Steps 1 to 5 are spoilt, so the checkpoint of step 3 must not exist.
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_sigterm_saves_and_the_run_continues(tmp_path, backend, capfd):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    how = {"model": {}, "noise": True}
    jobs.train(tmp_path / "whole", 0, {}, **how)
    report = jobs.train(tmp_path / "cut", 0, {}, signal_rank=0, signal_step=2, **how)
    assert (report["step"], report["interrupted"]) == (2, "SIGTERM")
    assert "stopped by SIGTERM at step 2" in capfd.readouterr().out
    assert jobs.train(tmp_path / "cut", 0, {}, **how)["step"] == 6
    left, right = jobs.weights(tmp_path / "whole", 6), jobs.weights(tmp_path / "cut", 6)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_evaluation_is_logged_and_changes_nothing(tmp_path, backend):
    steps = []

    def evaluate(parts, step):
        steps.append(step)
        return {"eval/mae": float(step)}

    _train(tmp_path / "with", backend, evaluate=evaluate, train__eval_interval=2)
    _train(tmp_path / "without", backend)
    assert steps == [2, 4, 6]
    found = jobs.records(tmp_path / "with")
    assert [r["eval/mae"] for r in found if "eval/mae" in r] == [2.0, 4.0, 6.0]
    losses = [r["total_loss"] for r in found if "total_loss" in r]
    assert losses == [r["total_loss"] for r in jobs.records(tmp_path / "without")]


def test_evaluation_without_held_out_data_is_said(tmp_path, backend, capfd):
    _train(tmp_path, backend, train__eval_interval=2)
    assert "train.eval_interval has no effect because data.holdout_episodes is 0" in capfd.readouterr().out


def test_a_model_that_predicts_nothing_is_not_evaluated(tmp_path, backend, capfd, monkeypatch):
    monkeypatch.setattr(toy.ToyModel, "predicts_actions", False, raising=False)
    _train(tmp_path, backend, train__eval_interval=2, data__holdout_episodes=1)
    assert "train.eval_interval has no effect because the model predicts no actions" in capfd.readouterr().out


def test_start_weights_freezing_and_placing(tmp_path, backend):
    torch.manual_seed(9)
    weights = toy.ToyModel(toy.ToyConfig()).state_dict()
    save_file(weights, str(tmp_path / "start.safetensors"))
    config = toy.config(
        tmp_path, train__pretrained_checkpoint=str(tmp_path / "start.safetensors"), train__freeze=["head"]
    )
    config.model.half_weights = True
    parts = set_up(config, toy.entry, backend, _world(backend))
    assert torch.equal(parts.model.head.weight, weights["head.weight"])
    assert not parts.model.head.weight.requires_grad
    assert torch.equal(parts.model.encoder.weight, weights["encoder.weight"])
    assert "encoder.weight" not in parts.model.state_dict()
    assert not parts.model.encoder.training
    assert parts.model.training
    assert parts.model.trunk[0].weight.dtype == torch.float32
    assert parts.decisions["made_float32"] == 4
    names = [group["name"] for group in parts.optimizer.param_groups]
    assert names == ["base"]


def test_autocast_is_entered_below_whoever_turns_it_off(backend):
    model = torch.nn.Linear(2, 2)
    autocast_inside(model, backend, torch.bfloat16)
    with torch.autocast("cpu", enabled=False):  # as DeepSpeed's engine does
        assert model(torch.ones(1, 2)).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_groups_made_by_deepspeed_get_the_jobs_timeout(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.distributed, "new_group", lambda *args, **kwargs: asked.append(kwargs["timeout"]))
    with _groups_with_timeout(7):
        torch.distributed.new_group([0])
    assert asked == [datetime.timedelta(seconds=7)]


def test_loss_counts_make_accumulated_batches_one_batch(tmp_path, backend):
    for name, batch, accumulation, counts in (("one", 8, 1, False), ("two", 4, 2, True), ("naive", 4, 2, False)):
        (tmp_path / name).mkdir()
        changes = {"data__batch_size": batch, "train__gradient_accumulation_steps": accumulation}
        jobs.train(tmp_path / name, 0, changes, {"counts": counts})
    one, two, naive = ([r["action_loss"] for r in jobs.records(tmp_path / n)] for n in ("one", "two", "naive"))
    assert two == pytest.approx(one, abs=1e-6)
    # The masks really differ: without counts the mean of the means is another number.
    assert max(abs(a - b) for a, b in zip(one, naive, strict=True)) > 1e-3


def test_loggers_that_cannot_work(tmp_path, backend, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(TrainError, match=r"'wandb', which is not installed(.|\n)*pip install"):
        _train(tmp_path, backend, run__loggers=["wandb"])
    with pytest.raises(TrainError, match="use any of jsonl, tensorboard, wandb"):
        _train(tmp_path, backend, run__loggers=["jsonll"])


def test_fp16_scales_the_loss_and_keeps_the_scale(tmp_path, backend, monkeypatch):
    monkeypatch.setattr(backend, "compute_dtype", lambda name: torch.float16)
    _train(tmp_path, backend, train__max_steps=3)
    scale = json.loads((tmp_path / "run" / "checkpoints" / "step_00000003" / "loss_scaler.json").read_text())
    assert scale["scale"] > 1
    assert all(math.isfinite(record["total_loss"]) for record in jobs.records(tmp_path))
    assert _train(tmp_path, backend).step == 6
