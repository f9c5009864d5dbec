from __future__ import annotations

from pathlib import Path

from vla_dit4dit.config import DiT4DiTConfig
from vla_dit4dit.quirks import QUIRKS, render
from vla_dit4dit.upstream_config import UPSTREAM_BEHAVIOUR
from vla_train.config.schema import Config
from vla_train.config.typed import defaults

SAME_AS_DEFAULT = {"model.action_head.noise_s", "data.image_size"}


def test_page_equals_table():
    page = Path(__file__).parents[3] / "docs" / "quirks.md"
    assert page.read_text() == render(), "write it with: python -m vla_dit4dit.quirks > docs/quirks.md"


def test_switches_exist_and_switch():
    tree = defaults(Config) | {"model": defaults(DiT4DiTConfig)}
    for quirk in QUIRKS:
        for key, value in quirk.switch.items():
            *parents, last = key.split(".")
            section = tree
            for parent in parents:
                section = section[parent]
            assert last in section, key
            assert (section[last] == value) == (key in SAME_AS_DEFAULT), key


def test_upstream_configurations_get_the_listed_switches():
    listed = {key: value for quirk in QUIRKS for key, value in quirk.switch.items()}
    assert {key: listed[key] for key in UPSTREAM_BEHAVIOUR} == dict(UPSTREAM_BEHAVIOUR)


def test_names_are_unique():
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS)
