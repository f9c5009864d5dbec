from __future__ import annotations

from pathlib import Path

from vla_groot.architecture import Architecture
from vla_groot.build import build_processor
from vla_groot.config import GrootConfig
from vla_groot.quirks import QUIRKS, render
from vla_train.config import load_config
from vla_train.config.schema import Config
from vla_train.config.typed import defaults, leaves, plain

PAGE = Path(__file__).parents[3] / "docs" / "groot_quirks.md"


def test_page_equals_table():
    assert PAGE.read_text() == render(), "write it with: python -m vla_groot.quirks > docs/groot_quirks.md"


def test_names_are_unique():
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS)


def test_switches_are_settings_that_switch():
    architecture = {f"model.architecture.{key}": value for key, value in plain(Architecture()).items()}
    known = {**dict(leaves(defaults(Config) | {"model": defaults(GrootConfig)})), **architecture}
    for quirk in QUIRKS:
        made = load_config(
            [],
            [f"{key}={value}" for key, value in quirk.switch.items()] + ["data.mixture=x", "model.base_model=x"],
            "groot",
        )
        set_to = dict(leaves(plain(made[0])))
        for key, value in quirk.switch.items():
            assert key in known, key
            assert set_to[key] == value, key
            # Those of the architecture are what published checkpoints have.
            assert (known[key] == value) == key.startswith("model.architecture."), key


def test_state_is_dropped_once_unless_asked(tmp_path, backend):
    from vla_groot import tiny

    tiny.save(tmp_path, backend, tiny.TinySpec(width=32, vision_width=16, vision_layers=1, layers=2, image=32))
    section = GrootConfig(base_model=str(tmp_path))
    assert build_processor(section).settings["state_dropout_prob"] == 0.0
    assert section.changes()["state_dropout_prob"] == 0.2
    section.processor.state_dropout_prob = 0.2
    assert build_processor(section).settings["state_dropout_prob"] == 0.2
