"""The `vla` command itself: help, versions, start-up, errors, and the commands that only look."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from vla_train.cli import backends, main, train

VLA = [sys.executable, "-m", "vla_train.cli"]
HEAVY = {"torch", "numpy", "transformers", "diffusers", "accelerate", "deepspeed", "pyarrow", "av", "matplotlib"}


def imported(*arguments: str) -> set[str]:
    """Modules that a `vla` command imports."""
    done = subprocess.run([sys.executable, "-X", "importtime", *VLA[1:], *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["backends"], ["train", "--dry-run"], ["train", "--zero=2", "--dry-run"]]
)
def test_the_parent_imports_nothing_heavy(arguments, config):
    if "train" in arguments:
        arguments = [*arguments, "--dry-run", "--backend", "cpu", "--config", str(config)]
    modules = imported(*arguments)
    assert "vla_train.cli" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    "command",
    [
        ["train"],
        ["eval"],
        ["backends"],
        ["config", "show"],
        ["checkpoint", "inspect"],
        ["checkpoint", "verify"],
        ["checkpoint", "export"],
    ],
)
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert f"vla {' '.join(command)}" in out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("vla-backend ")


def test_backends_table_and_json(capsys):
    assert main(["backends"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["BACKEND", "AVAILABLE", "DEVICES"]
    assert any(line.split()[:3] == ["cpu", "yes", "shared"] for line in table)
    assert main(["backends", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"cpu", "cuda", "ascend"} <= set(rows)
    assert rows["cpu"]["available"]
    assert "dist_backend" in rows["cpu"]["implemented"]
    assert not set(rows["cpu"]["implemented"]) & set(rows["cpu"]["defaulted"])
    assert rows["cpu"]["distribution"] == "vla-backend"


def test_broken_plugin_is_a_row(monkeypatch):
    import vla_backend
    from vla_backend import Candidate

    broken = Candidate("broken", "broken-dist", "1.0", "there_is_no_such_module")
    monkeypatch.setattr(vla_backend, "candidates", lambda: {"broken": broken})
    (row,) = backends.survey()
    assert not row["available"]
    assert "there_is_no_such_module" in row["reason"]


def test_error_has_no_traceback_unless_asked(tmp_path):
    command = [*VLA, "train", "--config", str(tmp_path / "none.yaml")]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2
    assert plain.stderr.startswith("error: The configuration has a problem:")
    assert "Traceback" not in plain.stderr
    asked = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"VLA_DEBUG": "1"})
    assert "Traceback" in asked.stderr


def test_interrupt_is_clean(monkeypatch, capsys, config):
    def interrupted(flag, config):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "choose_backend", interrupted)
    assert main(["train", "--config", str(config)]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_unknown_argument_of_a_command_without_overrides(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["backends", "--jsn"])
    assert ended.value.code == 2


def test_config_show(config, capsys):
    assert main(["config", "show", "--config", str(config), "train.max_steps=9", "--changed"]) == 0
    out = capsys.readouterr().out
    assert "train.max_steps: 9" in out
    assert "override 'train.max_steps=9'" in out
    assert "warmup_steps" not in out


def test_config_show_of_an_upstream_file(tmp_path, capsys):
    path = tmp_path / "libero.yaml"
    path.write_text(
        "run_id: u\nframework: {name: DiT4DiT, cosmos25: {base_model: pipe, training: joint}}\n"
        "datasets: {vla_data: {data_root_dir: d, data_mix: libero_all, per_device_batch_size: 2}}\n"
        "trainer: {max_train_steps: 10, learning_rate: {base: 1e-5, action_model: 1e-4}}\n"
    )
    arguments = [
        "config",
        "show",
        "--config_yaml",
        str(path),
        "--trainer.max_train_steps",
        "20",
        "train.warmup_steps=1",
    ]
    assert main(["config", "show", *arguments, "--trainer.framework.cosmos25.extract_layer", "3"]) == 0
    out, err = capsys.readouterr()
    lines = {left.strip(): source.strip() for left, _, source in (line.partition("#") for line in out.splitlines())}
    assert lines["run.id: u"] == f"{path}, translated"
    assert lines["train.max_steps: 20"] == "override '--trainer.max_train_steps 20', translated"
    assert lines["train.warmup_steps: 1"] == "override 'train.warmup_steps=1'"
    assert lines["train.learning_rate.action_model: 0.0001"] == f"{path}, translated"
    assert "has no effect" in err
