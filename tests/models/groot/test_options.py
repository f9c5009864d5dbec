"""The fine-tuning options of the command line."""

from __future__ import annotations

import pytest

from vla_groot.options import OPTIONS
from vla_train.config import ConfigError, load_config


def load(*options: str):
    return load_config([], options, "groot")[0]


def test_options_set_what_they_say():
    config = load(
        "--base-model", "some/where", "--dataset", "/a/b:/c", "--embodiment_tag", "libero_sim", "--tune-llm", "true",
        "--max-steps=7", "--learning-rate", "3e-4", "--seed", "3", "--batch-size", "4", "parallel.strategy=zero2",
    )  # fmt: skip
    assert config.model.base_model == "some/where"
    assert [entry.path for entry in config.data.datasets] == ["/a/b", "/c"]
    assert config.model.embodiment_tag == "libero_sim"
    assert config.model.tune_llm is True
    assert (config.train.max_steps, config.train.learning_rate["base"]) == (7, 3e-4)
    assert (config.run.seed, config.data.seed, config.data.batch_size) == (3, 3, 4)


def test_several_folders_are_drawn_as_their_sizes_are():
    assert load("--base-model", "x", "--dataset", "/a").model.sampling.size_exponent == 0
    assert load("--base-model", "x", "--dataset", "/a:/b").model.sampling.size_exponent == 1
    assert (
        load("--base-model", "x", "--dataset", "/a:/b", "--ds-weights-alpha", "0.4").model.sampling.size_exponent == 0.4
    )


def test_defaults_are_those_of_published_fine_tuning():
    train = load("--base-model", "x", "--dataset", "/a").train
    assert (train.learning_rate, train.optimizer.betas) == ({"base": 1e-4}, [0.9, 0.999])
    assert train.optimizer.fused is True
    assert (train.optimizer.weight_decay, train.gradient_clipping, train.scheduler.name) == (1e-5, 1.0, "cosine")


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_names_a_key(option):
    values = {
        "color-jitter-params": "{hue: 0.1}",
        "random-rotation-angle": "5",
        "episode-sampling-rate": "0.2",
        "crop-fraction": "0.9",
        "state-dropout-prob": "0.1",
        "dataset": "/a",
        "dataset-path": "/a",
    }
    flags = ("tune-llm", "tune-visual", "tune-projector", "tune-diffusion-model", "tune-vlln")
    yes = (*flags, "augment-images", "feature-cache", "use-percentiles", "letter-box-transform", "use-relative-action")
    words = ("base-model", "base-model-path", "embodiment-tag", "modality-config", "modality-config-path", "backbone",
             "output-dir", "experiment-name")  # fmt: skip
    text = values.get(option) or ("false" if option in yes else "word" if option in words else "3")
    load("model.base_model=x", "data.datasets=[{path: /a}]", f"--{option}", text)


def test_unknown_option():
    with pytest.raises(ConfigError, match="base_modell"):
        load("--base_modell", "x")
