"""The shipped configurations pass every check of `vla train`, and train what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from vla_groot.architecture import Architecture
from vla_groot.backbone_files import KNOWN
from vla_groot.checkpoint import build_empty
from vla_train.cli import main
from vla_train.config import load_config

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


def test_libero_is_the_published_run():
    config = load("groot_libero")
    assert config.data.batch_size * config.parallel.processes * config.train.gradient_accumulation_steps == 640
    assert (config.train.max_steps, config.train.warmup_steps, config.parallel.strategy) == (20_000, 1000, "zero2")
    assert (config.train.learning_rate, config.train.optimizer.weight_decay) == ({"base": 1e-4}, 1e-5)
    assert (config.train.scheduler.name, config.train.gradient_clipping) == ("cosine", 1.0)
    assert config.model.state_dropout_prob == config.model.processor.state_dropout_prob == 0.2


RELEASED = {
    "select_layer": 16,
    "diffusion_model_cfg": {"num_layers": 32},
    "vl_self_attention_cfg": {
        "num_layers": 4,
        "num_attention_heads": 32,
        "attention_head_dim": 64,
        "dropout": 0.2,
        "final_dropout": True,
    },
}


@pytest.mark.parametrize(("name", "trained"), [("groot_libero", 1.62e9), ("groot_small_card", 0.33e9)])
def test_how_much_is_trained_of_the_released_model(backend, name, trained):
    architecture = Architecture().updated({**RELEASED, **load(name).model.changes()})
    model = build_empty(architecture, KNOWN["nvidia/Cosmos-Reason2-2B"], backend)
    found = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert found == pytest.approx(trained, rel=0.02)
    assert set(model.frozen()) == {"backbone"}
