"""One owner of precision: everything that contradicts it is found."""

from __future__ import annotations

import pytest

from vla_train.config import ConfigError, load_config

ZERO = ["parallel.strategy=zero2"]
FP32 = "parallel.mixed_precision=fp32"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([*ZERO, "parallel.deepspeed={bf16: {enabled: false}}"], "bf16.enabled is False, but .* makes it True"),
        ([*ZERO, "parallel.deepspeed={fp16: {enabled: true}}"], "fp16.enabled is True, but .*mixed_precision makes it"),
        ([*ZERO, FP32, "parallel.deepspeed={bf16: {enabled: true}}"], "bf16.enabled is True, but .* makes it False"),
        ([FP32, "model.head.dtype=bfloat16"], "stores the weights in bfloat16"),
        (["parallel.mixed_precision=fp16", "model.head.dtype=bfloat16"], "parallel.mixed_precision=bf16"),
        ([*ZERO, "parallel.deepspeed={zero_optimization: {stage: 3}}"], "stage is 3, but parallel.strategy makes it 2"),
        ([*ZERO, "parallel.deepspeed={gradient_clipping: 0.5}"], "train.gradient_clipping makes it 1.0"),
    ],
)
def test_contradictions(base, overrides, expected):
    with pytest.raises(ConfigError, match=expected):
        load_config([base], overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        [*ZERO, "parallel.deepspeed={bf16: {enabled: true}}"],
        [*ZERO, "parallel.deepspeed={bf16: {enabled: auto}, gradient_clipping: auto}"],
        ["model.head.dtype=bfloat16"],
        ["parallel.mixed_precision=fp32"],
        ["parallel.strategy=zero3", "parallel.deepspeed={zero_optimization: {stage: 3, overlap_comm: true}}"],
    ],
)
def test_agreement(base, overrides):
    load_config([base], overrides)


def test_deepspeed_settings_without_zero_are_an_error(base):
    with pytest.raises(ConfigError, match=r"is set, but parallel\.strategy is ddp"):
        load_config([base], ["parallel.deepspeed={bf16: {enabled: true}}"])


def test_variable_of_accelerate(base, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    with pytest.raises(ConfigError, match="unset the variable"):
        load_config([base])
    load_config([base], ["parallel.mixed_precision=fp32"])
