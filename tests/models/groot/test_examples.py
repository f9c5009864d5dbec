"""The shipped configurations pass every check of `vla train`, and train what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vla_groot import tiny
from vla_groot.architecture import Architecture
from vla_groot.backbone_files import KNOWN
from vla_groot.checkpoint import build_empty
from vla_groot.custom import load_modality_configs
from vla_groot.embodiments import BUILT_IN
from vla_groot.outline import RELEASED
from vla_train import models
from vla_train.checkpoint.weights import consolidated
from vla_train.cli import main
from vla_train.config import load_config
from vla_train.evaluate import evaluate_checkpoint
from vla_train.train.run import run

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = ("groot_libero", "groot_small_card")


def load(name):
    return load_config([EXAMPLES / f"{name}.yaml"])[0]


@pytest.mark.parametrize("name", NAMES)
def test_dry_run(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dataset in load(name).data.datasets:
        meta = tmp_path / "data" / dataset.path / "meta"
        meta.mkdir(parents=True)
        (meta / "info.json").write_text("{}")
    command = ["train", "--backend", "cpu", "--config", str(EXAMPLES / f"{name}.yaml"), "--dry-run"]
    assert main([*command, f"data.root={tmp_path / 'data'}"]) == 0
    out = capsys.readouterr().out
    assert "dry run" in out
    assert not list(tmp_path.glob("runs"))
    assert main([*command, f"data.root={tmp_path / 'data'}", "model.base_model=./nowhere"]) == 2
    assert "there is no folder ./nowhere" in capsys.readouterr().err


def test_gr1_reads_the_sets_of_that_robot():
    """`vla train` runs where the repository is, so the modality configs are found from there."""
    config = load("groot_gr1")
    found = load_modality_configs(EXAMPLES.parent / config.model.modality_config)["new_embodiment"]
    published = BUILT_IN["robocasa_gr1_tabletop"]
    for group in ("state", "action"):
        assert found[group].modality_keys == published[group].modality_keys
    assert found["action"].action_configs == published["action"].action_configs
    assert found["action"].delta_indices == published["action"].delta_indices


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory, backend):
    """The folder of two runs, and the open-loop errors on the shipped demonstrations before and after fine-tuning."""
    folder = tmp_path_factory.mktemp("smoke")
    tiny.save(folder / "base", backend, tiny.TinySpec(width=64, vision_width=32, vision_layers=1, layers=4, image=32))
    entry, errors = models.find("groot"), []
    for name, settings in (
        ("before", ("train.max_steps=1", "train.learning_rate.base=0")),
        ("after", ("train.max_steps=60", "train.learning_rate.base=3e-3")),
    ):
        made = [f"model.base_model={folder / 'base'}", f"run.root={folder}", f"run.id={name}", "run.loggers=[jsonl]"]
        config, _ = load_config(
            [EXAMPLES / "demo_groot.yaml"],
            [*made, f"data.root={EXAMPLES / 'data'}", "data.holdout_episodes=1", *settings],
        )
        outcome = run(config, entry, backend)
        report = evaluate_checkpoint(config, entry, backend, outcome.checkpoint)
        errors.append(report.scalars()["eval/normalised_error"])
    return folder, errors


def test_a_step_without_a_learning_rate_changes_nothing(fine_tuned):
    """The demonstration takes such a checkpoint for the model before training."""
    folder, _ = fine_tuned
    trained = consolidated(folder / "before" / "checkpoints" / "step_00000001")
    base = load_file(folder / "base" / "model.safetensors")
    assert trained
    assert all(torch.equal(value, base[name]) for name, value in trained.items())


def test_fine_tuning_lowers_the_open_loop_error(fine_tuned):
    _, (before, after) = fine_tuned
    assert after < 0.7 * before


def test_libero_is_the_published_run():
    config = load("groot_libero")
    assert config.data.batch_size * config.parallel.processes * config.train.gradient_accumulation_steps == 640
    assert (config.train.max_steps, config.train.warmup_steps, config.parallel.strategy) == (20_000, 1000, "zero2")
    assert (config.train.learning_rate, config.train.optimizer.weight_decay) == ({"base": 1e-4}, 1e-5)
    assert (config.train.scheduler.name, config.train.gradient_clipping) == ("cosine", 1.0)
    assert config.model.state_dropout_prob == config.model.processor.state_dropout_prob == 0.2


@pytest.mark.parametrize(("name", "trained"), [("groot_libero", 1.62e9), ("groot_small_card", 0.33e9)])
def test_how_much_is_trained_of_the_released_model(backend, name, trained):
    architecture = Architecture().updated(RELEASED).updated(load(name).model.changes())
    model = build_empty(architecture, KNOWN["nvidia/Cosmos-Reason2-2B"], backend)
    found = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert found == pytest.approx(trained, rel=0.02)
    assert set(model.frozen()) == {"backbone"}
