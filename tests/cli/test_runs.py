"""`vla eval` and `vla checkpoint` up to the start of a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vla_train.checkpoint.manifest import Manifest, describe
from vla_train.cli import main
from vla_train.config import load_config, save_config
from vla_train.launch import runs, supervise
from vla_train.launch.plan import EVALUATION, EXPORT, Plan


@pytest.fixture
def run(config, tmp_path):
    """A run folder with its configuration."""
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    save_config(load_config([config])[0], folder / "config.yaml")
    return folder


@pytest.fixture
def plans(monkeypatch):
    made: list[tuple[Plan, str]] = []

    def watch(plan: Plan) -> int:
        made.append((plan, Path(plan.arguments[0]).read_text()))
        return 0

    monkeypatch.setattr(supervise, "supervise", watch)
    return made


def manifest(folder, step: int) -> None:
    (folder / "shard.bin").write_bytes(b"weights")
    Manifest(step, 1, "ddp", "", {"shard.bin": describe(folder / "shard.bin")}).write(folder)


def test_eval_takes_the_newest_complete_checkpoint(run, checkpoint, plans):
    checkpoint(100), checkpoint(200), checkpoint(300, complete=False)
    assert main(["eval", "--run", str(run), "--backend", "cpu", "eval.episodes=2"]) == 0
    ((plan, written),) = plans
    assert plan.module == EVALUATION
    newest = str(run / "checkpoints" / "step_00000200")
    assert plan.arguments[1:] == ["--run", str(run), "--checkpoint", newest, "--split", "eval"]
    assert "episodes: 2" in written


def test_eval_by_configuration_and_step(run, config, checkpoint, plans):
    checkpoint(100), checkpoint(200)
    assert main(["eval", "--config", str(config), "--checkpoint", "100", "--backend", "cpu"]) == 0
    arguments = plans[0][0].arguments
    assert arguments[arguments.index("--checkpoint") + 1].endswith("step_00000100")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["eval"], "pass --run"),
        (["eval", "--run", "{root}/dmo"], "did you mean {root}/demo?"),
        (["eval", "--run", "{root}/demo"], "no complete checkpoint 'latest'"),
        (["eval", "--run", "{root}/demo", "--checkpoint", "7"], "complete checkpoints there: none"),
        (["checkpoint", "inspect", "{root}/demo"], "holds no checkpoint"),
        (["checkpoint", "export", "--format", "toy", "{root}/demo", "{root}/out"], "--format dit4dit"),
        (["checkpoint", "export", "--format", "dit4dit", "{root}/demo", "{root}/demo"], "not an empty folder"),
    ],
)
def test_mistakes(run, capsys, arguments, expected):
    root = run.parent
    assert main([argument.format(root=root) for argument in arguments]) == 2
    assert expected.format(root=root) in capsys.readouterr().err


def test_inspect_tells_good_from_damaged(run, checkpoint, capsys):
    manifest(checkpoint(100), 100)
    assert main(["checkpoint", "inspect", str(run)]) == 0
    assert "step 100, ddp, 1 process, 0.0 MB: ok" in capsys.readouterr().out
    damaged = checkpoint(200)
    manifest(damaged, 200)
    (damaged / "shard.bin").write_bytes(b"weighty")
    checkpoint(300, complete=False)
    assert main(["checkpoint", "inspect", str(run), "--json"]) == 1
    good, changed, incomplete = json.loads(capsys.readouterr().out)
    assert good["problems"] == []
    assert "SHA-256" in changed["problems"][0]
    assert "no manifest.json" in incomplete["problems"][0]
    assert main(["checkpoint", "inspect", str(damaged), "--quick"]) == 0


def test_verify_names_what_is_wrong_and_what_can_be_continued(run, checkpoint, capsys):
    manifest(checkpoint(100), 100)
    assert main(["checkpoint", "verify", str(run)]) == 0
    assert "step_00000100: good, 1 files" in capsys.readouterr().out
    damaged = checkpoint(200)
    manifest(damaged, 200)
    (damaged / "shard.bin").write_bytes(b"weighty")
    assert main(["checkpoint", "verify", str(run)]) == 1
    out = capsys.readouterr().out
    assert "step_00000200: BAD\n  shard.bin has changed (SHA-256 differs)" in out
    assert f"the newest good one is {run / 'checkpoints' / 'step_00000100'}" in out
    assert main(["checkpoint", "verify", str(damaged)]) == 1
    assert "none can be continued" in capsys.readouterr().out


def test_export_starts_one_process(run, checkpoint, plans, tmp_path):
    checkpoint(100)
    command = ["checkpoint", "export", "--format", "dit4dit", str(run), str(tmp_path / "out"), "--backend", "cpu"]
    assert main(command) == 0
    ((plan, _),) = plans
    assert (plan.module, plan.processes) == (EXPORT, 1)
    assert plan.arguments[-2:] == ["--out", str(tmp_path / "out")]


def test_a_run_keeps_its_configuration_until_its_checkpoint_is_continued(run, config, checkpoint):
    settings = load_config([config])[0]
    before = (run / "config.yaml").read_text()
    assert runs.config_file(settings) == run / "config.yaml"  # no checkpoint: nothing to keep
    checkpoint(100)
    settings.train.max_steps = 77
    file = runs.config_file(settings)
    runs.write_config(settings, file)
    assert (run / "config.yaml").read_text() == before
    assert "max_steps: 77" in file.read_text()
    runs.adopt_config(run)
    assert "max_steps: 77" in (run / "config.yaml").read_text()
    assert not file.exists()
    runs.adopt_config(run)  # a run that starts anew has nothing to adopt


def test_what_a_failed_attempt_left_is_not_adopted_later(run, config, checkpoint):
    settings = load_config([config])[0]
    (run / runs.NEXT).write_text("of an attempt that failed")
    runs.write_config(settings, runs.config_file(settings))
    runs.adopt_config(run)
    assert "of an attempt" not in (run / "config.yaml").read_text()


def test_a_checkpoint_of_another_model_is_not_continued(run, config, checkpoint, capsys):
    newest = checkpoint(100)
    text = (run / "config.yaml").read_text().replace("name: dit4dit", "name: groot")
    (run / "config.yaml").write_text(text)
    for extra in ([], ["--resume", str(newest)]):
        assert main(["train", "--config", str(config), "--backend", "cpu", *extra]) == 2
        assert f"{newest} is of the model 'groot', not of 'dit4dit'" in capsys.readouterr().err
