"""Reading settings from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from vla_train.config.overrides import parse

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "config" / "dotlist.json").read_text())


def test_upstream_style_gives_the_recorded_dotlist():
    settings, stray = parse(GOLDEN["argv"])
    assert [setting.dotlist for setting in settings] == GOLDEN["dotlist"]
    assert stray == ["orphan"]


def test_values_are_typed_as_recorded():
    settings, _ = parse(GOLDEN["argv"])
    merged = OmegaConf.create({})
    for setting in settings:
        OmegaConf.update(merged, setting.key, setting.value)
    assert OmegaConf.to_container(merged) == GOLDEN["merged"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train.max_steps=3"], [("train.max_steps", 3)]),
        (["--train.max_steps", "3"], [("train.max_steps", 3)]),
        (["--is_debug", "train.max_steps=3"], [("is_debug", True), ("train.max_steps", 3)]),
        (["--a.b", "x=y"], [("a.b", "x=y")]),
        (["data.datasets=[{path: a, weight: 2}]"], [("data.datasets", [{"path": "a", "weight": 2}])]),
        (["train.learning_rate.base=1e-5"], [("train.learning_rate.base", 1e-5)]),
        (["--flag"], [("flag", True)]),
        (["run.wandb_project="], [("run.wandb_project", None)]),
    ],
)
def test_values(arguments, expected):
    settings, stray = parse(arguments)
    assert [(setting.key, setting.value) for setting in settings] == expected
    assert stray == []
