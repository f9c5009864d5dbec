"""`vla train --performance`, and the shipped configuration of RoboTwin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.train import toy
from vla_backend import activate
from vla_train.config import load_config
from vla_train.performance import measure, without_checkpoints

ROBOTWIN = Path(__file__).parents[2] / "examples" / "robotwin_14dim.yaml"


def test_samples_per_second_without_checkpoints(tmp_path) -> None:
    config = toy.config(tmp_path, train__gradient_accumulation_steps=2)
    without_checkpoints(config, steps=4)
    found = measure(config, toy.entry, activate("cpu"), steps=4, warm_up=2)
    assert (found.steps, found.warm_up, found.processes) == (4, 2, 1)
    assert found.samples_per_s_per_device == 2 * config.data.batch_size / found.step_s
    assert found.samples_per_s == found.samples_per_s_per_device
    assert 0 <= found.data_s < found.step_s
    assert 0 < found.memory_peak <= found.memory_total
    assert "samples/s per device" in found.lines()[0]
    folder = tmp_path / config.run.id
    assert config.run.id.endswith("_performance")
    assert not (folder / "checkpoints").exists()
    assert not (folder / "metrics.jsonl").exists()


def test_the_command_starts_the_measurement(tmp_path, capsys, monkeypatch) -> None:
    from vla_train.cli import main

    (tmp_path / "pipeline").mkdir()
    data = ROBOTWIN.parent / "data"
    config = tmp_path / "config.yaml"
    tree = {
        "run": {"id": "demo", "root": str(tmp_path / "runs")},
        "model": {"name": "dit4dit", "backbone": {"path": str(tmp_path / "pipeline")}},
        "data": {"root": str(data), "datasets": [{"path": "metaworld_button_press_topdown"}]},
        "parallel": {"mixed_precision": "fp32"},
    }
    config.write_text(json.dumps(tree))
    arguments = ["train", "--backend", "cpu", "--config", str(config), "--performance", "7", "--dry-run"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "vla_train.performance" in shown
    assert "demo_performance" in shown
    command = next(line for line in shown.splitlines() if line.startswith("command"))
    assert command.endswith(" 7")
    assert not (tmp_path / "runs").exists()
    with pytest.raises(SystemExit):
        main([*arguments[:-2], "0"])
    assert "--performance: '0' is no whole number of at least 1" in capsys.readouterr().err


def test_robotwin_has_fourteen_dimensions() -> None:
    from vla_dit4dit.data.robots import ROBOTS
    from vla_dit4dit.data.selection import select_datasets

    config, _ = load_config([ROBOTWIN])
    head = config.model.action_head
    assert head.action_dim == head.state_dim == config.data.max_action_dim == config.data.max_state_dim == 14
    chosen = select_datasets(config.data)
    assert len(chosen) == 100
    robot = ROBOTS[chosen[0][0].robot]
    assert robot.action_horizon == head.action_horizon
    assert len(robot.video_keys) == 3
    # A clip is the observation and every second frame of the window of actions.
    assert config.data.video_delta_indices[-1] == head.action_horizon
