"""`vla explain`: a backend, a run, two runs compared."""

from __future__ import annotations

import json

from vla_backend.ledger import Decision
from vla_train import ledger
from vla_train.checkpoint.layout import write_json
from vla_train.cli import main


def run_folder(path, **backend):
    path.mkdir()
    made = [Decision(name, value, "plugin one 1.0") for name, value in backend.items()]
    write_json(path / "decisions.json", {"ledger": ledger.as_json({"backend": made})})
    return path


def test_a_backend_that_cannot_run_here_is_explained_without_its_chip(capsys):
    assert main(["explain", "--backend", "ascend", "--json"]) == 0
    found = {line["subject"]: line for line in json.loads(capsys.readouterr().out)["backend"]}
    assert found["dist_backend"]["value"] == "hccl"
    assert found["dist_backend"]["why"]
    assert found["probe"]["value"]["ok"] is False


def test_with_a_configuration_its_keys_and_the_environment_are_explained(config, capsys):
    assert main(["explain", "--backend", "ascend", "--config", str(config), "train.max_steps=7"]) == 0
    said = capsys.readouterr().out
    assert "  train.max_steps = 7    [override 'train.max_steps=7']" in said
    assert "      instead of 100000" in said
    assert "HCCL_EXEC_TIMEOUT" in said


def test_two_runs_compared(tmp_path, capsys):
    left = run_folder(tmp_path / "a", dist_backend="gloo", pin_memory_ok=False, only_a=1)
    right = run_folder(tmp_path / "b", dist_backend="hccl", pin_memory_ok=False)
    assert main(["explain", "--diff", str(left), str(right)]) == 0
    said = capsys.readouterr().out
    assert "    A gloo    [plugin one 1.0]\n    B hccl    [plugin one 1.0]" in said
    assert "  only_a\n    A 1    [plugin one 1.0]\n    B -" in said
    assert "pin_memory_ok" not in said
    assert main(["explain", "--diff", str(left), str(right), "--json"]) == 0
    assert {line["subject"] for line in json.loads(capsys.readouterr().out)} == {"dist_backend", "only_a"}


def test_a_subject_decided_twice_is_compared_twice():
    one = {"set-up": [Decision("deepspeed", "a", "plugin"), Decision("deepspeed", "b", "plugin")]}
    other = {"set-up": [Decision("deepspeed", "a", "plugin"), Decision("deepspeed", "c", "plugin")]}
    (difference,) = ledger.compare(one, other)
    assert difference.subject == "deepspeed #2"
    assert (difference.left.value, difference.right.value) == ("b", "c")


def test_a_folder_without_a_ledger(tmp_path, capsys):
    assert main(["explain", "--run", str(tmp_path)]) == 2
    assert "has no decisions.json" in capsys.readouterr().err
    write_json(tmp_path / "decisions.json", {"backend": "cpu"})
    assert main(["explain", "--run", str(tmp_path)]) == 2
    assert "holds no ledger" in capsys.readouterr().err
