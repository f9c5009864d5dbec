"""Files and overrides in an upstream project's layout."""

from __future__ import annotations

from importlib import metadata

import pytest

from vla_train import models
from vla_train.config import ConfigError, load_config

UPSTREAM = "run_id: 4\nframework: {width: 3}\ntrainer: {max_train_steps: 10, epochs: 2}\n"


@pytest.fixture
def upstream(write):
    return write(UPSTREAM.replace("4", "'x4'", 1), "upstream.yaml")


def test_translated_with_both_kinds_of_overrides(upstream):
    # The native override wins although it comes first: upstream's are merged before the translation.
    config, sources = load_config(
        [upstream], ["model.width=6", "--framework.width", "5", "--trainer.max_train_steps", "20"]
    )
    assert (config.run.id, config.model.width, config.train.max_steps) == ("x4", 6, 20)
    assert sources.of("run.id") == f"{upstream}, translated"
    assert sources.of("model.width") == "override 'model.width=6'"
    assert sources.of("train.max_steps") == "override '--trainer.max_train_steps 20', translated"
    assert sources.notes == []


def test_override_without_effect_is_accepted_with_a_note(upstream):
    config, sources = load_config([upstream], ["--trainer.framework.width", "9", "--framework.width", "3", "orphan"])
    assert config.model.width == 3
    assert sources.notes == [
        "'--trainer.framework.width 9' has no effect: toy does not read trainer.framework.width",
        "'orphan' sets nothing and is ignored",
    ]


def test_native_file_beside_an_upstream_one(upstream, write):
    extra = write("train: {warmup_steps: 5}\n", "extra.yaml")
    config, _ = load_config([upstream, extra])
    assert (config.train.max_steps, config.train.warmup_steps) == (10, 5)


def test_layout_nobody_knows_is_an_unknown_key(write):
    with pytest.raises(ConfigError, match=r"is in a layout that no model reads; asked: toy[^$]*frame_work"):
        load_config([write("frame_work: {width: 3}\n", "unknown.yaml")])


def test_broken_model_package_does_not_hide_the_others(upstream, monkeypatch):
    working = models.entries()["toy"]
    broken = metadata.EntryPoint("a_broken_one", "toy_model_package:nothing", models.GROUP)
    monkeypatch.setattr(models, "entries", lambda: {"a_broken_one": broken, "toy": working})
    config, sources = load_config([upstream])
    assert config.model.name == "toy"
    assert "a_broken_one" in sources.notes[0]


def test_upstream_override_on_a_native_file_is_an_unknown_key(base):
    with pytest.raises(ConfigError, match="framework"):
        load_config([base], ["--framework.width", "5"])


def test_translation_that_fails_says_why(write):
    with pytest.raises(ConfigError, match="cannot be translated for the model 'toy'"):
        load_config([write("framework: 3\n", "broken.yaml")])


def test_values_are_checked_after_translation(upstream):
    with pytest.raises(ConfigError, match=r"model.width .*override '--framework.width wide', translated"):
        load_config([upstream], ["--framework.width", "wide"])
