"""`vla train` up to the start of the processes: every mistake is found before."""

from __future__ import annotations

import os

import pytest
import yaml

from vla_backend import Probe, activate
from vla_backend.types import ConfigIssue
from vla_train.cli import main
from vla_train.config import load_config
from vla_train.launch import preflight, supervise
from vla_train.launch.plan import WORKER, Plan, available_cpus, plan


@pytest.fixture
def train(config, monkeypatch, capsys):
    """Run `vla train` on the configuration; answers code, output, errors and the plan that would have been started."""
    plans: list[Plan] = []
    monkeypatch.setattr(supervise, "supervise", lambda plan: plans.append(plan) or 0)

    def run(*arguments: str):
        plans.clear()
        code = main(["train", "--backend", "cpu", "--config", str(config), *arguments])
        out, err = capsys.readouterr()
        return code, out, err, plans[0] if plans else None

    return run


def test_starts_the_worker_with_the_complete_configuration(train, tmp_path, config):
    code, out, _, started = train("train.max_steps=5")
    written = tmp_path / "runs" / "demo" / "config.yaml"
    assert code == 0
    assert (started.module, started.arguments, started.processes) == (WORKER, [str(written)], 1)
    assert load_config([written])[0] == load_config([config], ["train.max_steps=5"])[0]
    assert "--backend says so" in out
    assert "new" in out
    assert started.added["VLA_BACKEND"] == "cpu"


def test_automatic_choice_says_what_and_why(train, config, capsys, monkeypatch):
    assert main(["train", "--config", str(config), "--dry-run"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("backend"))
    assert "cpu" in line
    assert "automatic" in line


def test_flags_are_overrides(train):
    _, out, _, started = train("--processes", "2", "--zero", "3", "data.batch_size=4")
    assert "2 processes, zero3, fp32" in out
    assert started.processes == 2
    assert started.added["DEEPSPEED_TIMEOUT"] == "30"
    assert started.added["OMP_NUM_THREADS"] == str(max(1, available_cpus() // 2))
    _, _, _, started = train("--zero", "3", "--dist-timeout", "600")
    assert started.added["DEEPSPEED_TIMEOUT"] == "10"


def test_users_own_variables_stay(train, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    _, out, _, started = train("--processes", "2")
    assert "OMP_NUM_THREADS" not in started.added
    assert "not passed on: ACCELERATE_USE_FSDP RANK" in out
    environment = started.environment(os.environ)
    assert environment["OMP_NUM_THREADS"] == "7"
    assert "RANK" not in environment


def test_dry_run_writes_and_starts_nothing(train, tmp_path):
    code, out, _, started = train("--dry-run", "--processes", "2")
    assert (code, started) == (0, None)
    assert "vla_train.launch.agent" in out
    assert not (tmp_path / "runs").exists()


def test_explicit_backend_that_cannot_run_is_an_error(config, capsys):
    assert main(["train", "--backend", "cuda", "--config", str(config)]) == 2
    error = capsys.readouterr().err
    assert "Backend 'cuda' cannot run here." in error
    assert "fix:" in error
    assert main(["train", "--backend", "cup", "--config", str(config)]) == 2
    assert "did you mean 'cpu'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["data.root=/nowhere/at/all"], "data.root (override 'data.root=/nowhere/at/all'): there is no folder"),
        (["data.datasets=[{path: metaworld_button_pres}]"], "metaworld_button_press_topdown?"),
        (["data.datasets=[{path: ../../tests}]"], "no LeRobot dataset"),
        (["data.datasets=[]", "data.mixture=libero_al"], "did you mean 'libero_all'?"),
        (["data.datasets=[]", "data.mixture=libero_all"], "data.mixture (override 'data.mixture=libero_all'): "),
        (["data.datasets=[{path: metaworld_button_press_topdown, robot: libero_frank}]"], "libero_franka"),
        (["train.pretrained_checkpoint=model.pt"], "train.pretrained_checkpoint"),
        (["model.backbone.path=/nowhere/pipe"], "model.backbone.path"),
        (["parallel.deepspeed=ds.json", "parallel.strategy=zero2"], "ds.json"),
        (["train.resume=runs/x"], "neither auto, never nor a checkpoint folder"),
        (["train.max_step=5"], "did you mean 'train.max_steps'?"),
        (["parallel.strategy=zero2", "parallel.deepspeed={bf16: {enabled: true}}"], "parallel.mixed_precision"),
        (["model.backbone.dtype=bfloat16"], "stores the weights in bfloat16"),
        (["parallel.mixed_precision=fp16"], "parallel.mixed_precision"),
    ],
)
def test_mistakes_are_found_before_the_start(train, overrides, expected):
    code, _, error, started = train(*overrides)
    assert (code, started) == (2, None)
    assert expected in error
    assert "Traceback" not in error


def test_several_mistakes_come_together(train, tmp_path):
    (tmp_path / "file").write_text("")
    _, _, error, _ = train("train.resume=nothing", "data.root=/nowhere", f"run.root={tmp_path}/file")
    assert "3 problems" in error
    assert f"{tmp_path}/file is a file" in error


def test_hub_id_is_not_a_missing_folder(train, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--nvidia--Cosmos-Predict2.5-2B").mkdir()
    assert train("model.backbone.path=nvidia/Cosmos-Predict2.5-2B", "--dry-run")[0] == 0


def test_missing_config_file_names_the_nearest(config, capsys):
    assert main(["train", "--config", str(config.with_name("confg.yaml"))]) == 2
    assert f"did you mean {config}?" in capsys.readouterr().err


def test_more_processes_than_devices(config, monkeypatch):
    configuration, _ = load_config([config], ["parallel.processes=9"])
    backend = activate("cpu")
    monkeypatch.setattr(backend, "probe", lambda env=None: Probe(ok=True, reason="", device_count=8))
    monkeypatch.setitem(backend.__dict__, "visible_devices_env", "CHIP_VISIBLE_DEVICES")
    (problem,) = preflight._processes(configuration, backend, {"CHIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"})
    assert "is 9, but backend 'cpu' sees 8 devices (CHIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 limits them)" in str(problem)
    configuration.parallel.processes = 8
    assert preflight._processes(configuration, backend, {}) == []


def test_findings_of_the_backend(config, monkeypatch):
    configuration, sources = load_config([config])
    backend = activate("cpu")
    issues = [ConfigIssue("error", "train.x", "cannot work", "drop it"), ConfigIssue("warning", "data.y", "is slow")]
    monkeypatch.setattr(backend, "check_config", lambda config, env: issues)
    with pytest.raises(Exception, match=r"train\.x: cannot work; drop it"):
        preflight.check_training(configuration, sources, backend, {})
    issues.pop(0)
    assert preflight.check_training(configuration, sources, backend, {}) == ["data.y: is slow"]


def test_packages_that_are_not_installed(train, monkeypatch):
    find = preflight.importlib.util.find_spec
    monkeypatch.setattr(
        preflight.importlib.util, "find_spec", lambda name: None if name in ("deepspeed", "wandb") else find(name)
    )
    _, _, error, _ = train("--zero", "2", "run.loggers=[wandb]")
    assert "pip install deepspeed" in error
    assert "pip install wandb" in error


def test_existing_run_is_continued_or_refused(train, checkpoint):
    checkpoint(100)
    checkpoint(200, complete=False)
    _, out, _, _ = train("--dry-run")
    assert "continues step_00000100" in out
    code, _, error, _ = train("--resume", "never")
    assert code == 2
    assert "already has checkpoints, the newest of step 200" in error


def test_resume_from_a_folder(train, checkpoint):
    good, bad = checkpoint(100), checkpoint(200, complete=False)
    assert train("--resume", str(good))[0] == 0
    code, _, error, _ = train("--resume", str(bad))
    assert code == 2
    assert f"did you mean {good}?" in error


def test_change_of_a_continued_run_is_shown(train, checkpoint):
    train()
    checkpoint(100)
    _, out, _, _ = train("data.batch_size=3")
    assert "differs from the run that is continued: data.batch_size: 16 -> 3" in out


def test_accelerate_gets_a_complete_configuration_of_its_own(config, tmp_path):
    configuration, _ = load_config([config], ["parallel.processes=3", "parallel.mixed_precision=bf16"])
    made = plan(WORKER, ["c.yaml"], configuration, activate("cpu"), {}, 3)
    command = made.command(tmp_path)
    assert command[1:3] == ["-m", "vla_train.launch.agent"]
    assert command[-2:] == [WORKER, "c.yaml"]
    written = yaml.safe_load((tmp_path / "accelerate.yaml").read_text())
    assert (written["num_processes"], written["mixed_precision"]) == (3, "bf16")
