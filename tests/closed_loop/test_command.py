"""`vla eval` from the command line: a trained run acts in a third party's environment, and is evaluated open loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.closed_loop.test_environments import install
from vla_train.cli import main

SHIPPED = Path(__file__).parents[2] / "examples" / "data"
SETTINGS = [
    "model.name=dit4dit",
    "model.repeated_diffusion_steps=1",
    "model.backbone.extract_layer=0",
    "model.backbone.max_sequence_length=32",
    "model.action_head={size: DiT-T, num_layers: 2, hidden_size: 16, output_dim: 16, action_dim: 4, max_seq_len: 64}",
    "model.action_head.state_dim=4",
    f"data.root={SHIPPED}",
    "data.datasets=[{path: metaworld_button_press_topdown}]",
    "data.holdout_episodes=2",
    "data.image_size=[32, 32]",
    "data.video_delta_indices=[0, 1, 2, 3, 4]",
    "data.max_action_dim=4",
    "data.max_state_dim=4",
    "data.batch_size=1",
    "data.num_workers=0",
    "run.loggers=[jsonl]",
    "run.id=slide",
    "train.max_steps=1",
    "parallel.mixed_precision=fp32",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from vla_dit4dit import tiny

    root = tmp_path_factory.mktemp("closed_loop")
    tiny.main([str(root / "pipeline"), "--width", "32", "--heads", "2", "--layers", "1"])
    config = root / "config.yaml"
    config.write_text(f"run: {{root: {root}/runs}}\nmodel: {{backbone: {{path: {root}/pipeline}}}}\n")
    assert main(["train", "--backend", "cpu", "--config", str(config), *SETTINGS]) == 0
    return root / "runs" / "slide"


@pytest.fixture(scope="module")
def groot_run(tmp_path_factory):
    from vla_groot import tiny

    root = tmp_path_factory.mktemp("closed_loop_groot")
    sizes = ("--width", "32", "--vision-width", "32", "--vision-layers", "1", "--layers", "4", "--image", "32")
    tiny.main([str(root / "base"), *sizes])
    changes = [f"model.base_model={root}/base", f"run.root={root}/runs", f"data.root={SHIPPED}", "train.max_steps=1"]
    config = str(SHIPPED.parent / "demo_groot.yaml")
    assert main(["train", "--backend", "cpu", "--config", config, "run.id=slide", "data.batch_size=2", *changes]) == 0
    return root / "runs" / "slide"


@pytest.fixture
def slider(tmp_path, monkeypatch):
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_closed_loop(run, slider, capfd):
    command = ["eval", "--run", str(run), "--backend", "cpu", "--env", "slider:right", "--env-option", "size=32"]
    assert main([*command, "--episodes", "2", "--first-seed", "3", "--execute", "4"]) == 0
    out = capfd.readouterr().out
    assert "slider:right: 2 episodes (seeds 3 to 4)" in out
    assert "black images" in out
    written = json.loads((run / "closed_loop" / "slider_right_step_00000001.json").read_text())
    assert written["environment"] == "slider:right"
    assert written["options"] == {"size": 32}
    assert (written["execute"], written["noise_seed"]) == (4, 0)
    for name in ("model", "black images"):
        results = written["policies"][name]["results"]
        assert [r["seed"] for r in results] == [3, 4]
        for result in results:
            video = run / "closed_loop" / "slider_right_step_00000001" / result["video"]
            assert video.stat().st_size > 500


def test_closed_loop_of_groot(groot_run, slider, capfd):
    command = ["eval", "--run", str(groot_run), "--backend", "cpu", "--env", "slider:right", "--no-videos"]
    assert main([*command, "--episodes", "2", "--execute", "4"]) == 0
    assert "slider:right: 2 episodes (seeds 0 to 1)" in capfd.readouterr().out
    written = json.loads((groot_run / "closed_loop" / "slider_right_step_00000001.json").read_text())
    assert {name: len(policy["results"]) for name, policy in written["policies"].items()} == {
        "model": 2,
        "black images": 2,
    }


def test_what_is_not_installed_is_said_in_one_line(run, slider, capfd, monkeypatch):
    monkeypatch.setenv("SLIDER_MISSING", "pip install slides")
    assert main(["eval", "--run", str(run), "--backend", "cpu", "--env", "slider:right"]) == 2
    assert "error: The environment 'slider' cannot run here: pip install slides" in capfd.readouterr().err.splitlines()


def test_open_loop_of_every_episode(run, capfd):
    assert main(["eval", "--run", str(run), "--backend", "cpu", "--split", "all", "--episodes", "3"]) == 0
    out = capfd.readouterr().out
    assert ": 3 recorded episodes" in out
    assert "95 % interval" in out
    written = json.loads((run / "plots" / "eval_step_00000001_all.json").read_text())
    assert written["split"] == "recorded"
    assert len(next(iter(written["robots"].values()))["episodes"]) == 3
    assert len(written["normalised_error_interval"]) == 2


def test_other_data_than_that_of_the_run_is_refused(run, capfd):
    command = ["eval", "--run", str(run), "--backend", "cpu", "--episodes", "1", "data.holdout_episodes=20"]
    assert main(command) == 2
    assert "other statistics" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "slider"], "names no task"),
        (["--env", "nowhere:right"], "no environment named 'nowhere'"),
        (["--env", "metaworld:push-v3", "--split", "all"], "recorded episodes"),
        (["--env", "metaworld:push-v3", "--env-option", "size"], "--env-option KEY=VALUE"),
        (["--execute", "4"], "--execute needs --env"),
    ],
)
def test_mistakes_are_said_before_anything_starts(arguments, message, run, capfd):
    assert main(["eval", "--run", str(run), "--backend", "cpu", *arguments]) == 2
    assert message in capfd.readouterr().err
