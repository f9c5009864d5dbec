"""The demonstrations' driver: the commands it runs, and when it says that the promise is kept."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from examples import demo
from examples.demo import DIT4DIT, ROOT, Demo
from examples.demo_groot import GROOT
from vla_train.config import load_config

BOTH = pytest.mark.parametrize("described", [DIT4DIT, GROOT], ids=["dit4dit", "groot"])


@BOTH
def test_describes_what_its_configuration_says(described: Demo):
    config = load_config([ROOT / "examples" / described.config])[0]
    assert described.run == ROOT / config.run.root / config.run.id
    start = config.model.base_model if described is GROOT else config.model.backbone.path
    assert described.weights.parent == ROOT / start
    assert described.build[2] == start
    assert config.data.holdout_episodes > 0


def commands(monkeypatch, described: Demo) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(demo, "run", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(demo, "conclude", lambda _: 0)
    monkeypatch.setattr(sys, "argv", ["demo", "--backend", "mine"])
    assert demo.main(described) == 0
    return found


@BOTH
def test_commands(monkeypatch, tmp_path, described: Demo):
    new = dataclasses.replace(described, weights=tmp_path / "config.json")
    build, *rest = commands(monkeypatch, new)
    assert build == described.build
    assert [command[2] for command in rest] == (["train", "eval"] if described.gain else []) + ["train", "eval"]
    assert all(command[:2] == ("-m", "vla_train.cli") and command[3:5] == ("--backend", "mine") for command in rest)
    assert rest[-1][5:] == ("--run", str(described.run))
    new.weights.touch()
    assert commands(monkeypatch, new) == rest, "weights that are there are kept"


def report(run: Path, name: str, error: float) -> None:
    (run / "plots").mkdir(parents=True, exist_ok=True)
    (run / "plots" / f"eval_step_{name}.json").write_text(json.dumps({"normalised_error": error}))


@pytest.mark.parametrize(
    ("error", "before", "code"),
    [(0.4, 2.0, 0), (0.6, 2.0, 1), (0.4, 0.7, 1), (float("nan"), 2.0, 1)],
    ids=["kept", "no better than the mean", "no better than before", "not a number"],
)
def test_promise(tmp_path, capsys, error, before, code):
    promising = dataclasses.replace(GROOT, run=tmp_path / "run", bound=0.5, gain=0.5)
    report(promising.run, "00000600", error)
    report(promising.untrained, "00000001", before)
    (promising.run / "plots" / "loss.png").touch()
    assert demo.conclude(promising) == code
    out = capsys.readouterr().out
    assert ("NOT at most" in out) == bool(code)
    assert "eval_step_00000600.json" in out
    assert "loss.png" in out


def test_a_failed_command_ends_the_demo():
    with pytest.raises(SystemExit) as ended:
        demo.run("-c", "raise SystemExit(3)")
    assert ended.value.code == 3
