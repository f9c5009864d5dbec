"""What the closed-loop demo promises."""

from __future__ import annotations

import json
import sys

import pytest

from examples import demo_closed_loop


@pytest.mark.parametrize(
    ("model", "blind", "p_value", "code", "said"),
    [
        (20, 3, 1.5e-5, 0, ("20 of 20", "(at least 16", "3 with black images (clearly fewer")),
        (16, 8, 0.008, 0, ("(at least 16", "(clearly fewer")),
        (15, 3, 5e-4, 1, ("(NOT at least 16", "(clearly fewer")),
        (16, 13, 0.38, 1, ("(at least 16", "(NOT clearly fewer")),
        (16, 20, 0.04, 1, ("(at least 16", "(NOT clearly fewer")),
    ],
)
def test_the_promise(model, blind, p_value, code, said, tmp_path, capsys):
    policies = {
        name: {"successes": solved, "episodes": 20, "rate": solved / 20}
        for name, solved in (("model", model), ("black images", blind))
    }
    report = tmp_path / "report.json"
    content = {"policies": policies, "p_values": {"black images": p_value}, "videos": str(tmp_path)}
    report.write_text(json.dumps(content))
    assert demo_closed_loop.conclude(report) == code
    out = capsys.readouterr().out
    assert all(text in out for text in said)


@pytest.mark.parametrize(("options", "run"), [((), "demo"), (("--model", "groot"), "demo_groot")])
def test_the_model_of_either_demo_acts(monkeypatch, tmp_path, options, run):
    found: list[tuple[str, ...]] = []
    demo = demo_closed_loop.DEMOS["groot" if options else "dit4dit"]
    monkeypatch.setattr(sys, "argv", ["demo", *options])
    monkeypatch.setattr(demo_closed_loop, "run", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(demo_closed_loop, "vla", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(demo_closed_loop, "newest", lambda folder: folder)
    monkeypatch.setattr(demo_closed_loop, "conclude", lambda report: 0)
    monkeypatch.setattr("vla_train.closed_loop.environments.EnvironmentEntry.check", lambda self: None)
    assert demo_closed_loop.main() == 0
    *_, train, evaluate = found
    assert train == ("train", "cpu", "--config", f"examples/{run}.yaml")
    assert evaluate[:4] == ("eval", "cpu", "--run", str(demo.run))
    assert demo.run.name == run
