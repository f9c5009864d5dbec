"""docs/groot.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from vla_groot.config import GrootConfig
from vla_groot.custom import load_modality_configs
from vla_groot.options import DEFAULTS, OPTIONS
from vla_train.config.reference import fill, rows

PAGE = (Path(__file__).parents[3] / "docs" / "groot.md").read_text(encoding="utf-8")


def test_settings_are_up_to_date():
    assert fill(PAGE) == PAGE, "write them with: python -m vla_train.config.reference docs/groot.md"
    assert [key for key, _, _, text in rows(GrootConfig) if not text] == []


def test_every_option_is_listed_with_what_it_sets():
    for name, translate in OPTIONS.items():
        keys = ", ".join(f"`{setting.partition('=')[0]}`" for setting in translate("x"))
        assert f"| `--{name}` | {keys} |" in PAGE, name


def test_the_example_of_a_robot_works(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (tmp_path / "robot.yaml").write_text(example)
    action = load_modality_configs(tmp_path / "robot.yaml")["new_embodiment"]["action"]
    assert [action.action(key).rep.value for key in action.modality_keys] == ["relative", "absolute"]


def test_named_defaults():
    train = DEFAULTS["train"]
    assert (train["max_steps"], train["warmup_steps"], train["learning_rate"]["base"]) == (10_000, 500, 1e-4)
