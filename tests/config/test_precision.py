"""One owner of precision: everything that contradicts it is found."""

from __future__ import annotations

import pytest

from vla_train.config import ConfigError, load_config


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["parallel.deepspeed={bf16: {enabled: false}}"],
            "bf16.enabled.*is False but .* is bf16",
        ),
        (["parallel.deepspeed={fp16: {enabled: true}}"], "fp16.enabled.*is True but parallel.mixed_precision is bf16"),
        (["parallel.mixed_precision=fp32", "parallel.deepspeed={bf16: {enabled: true}}"], "mixed_precision is fp32"),
        (["parallel.mixed_precision=fp32", "model.head.dtype=bfloat16"], "stores the weights in bfloat16"),
        (["parallel.mixed_precision=fp16", "model.head.dtype=bfloat16"], "parallel.mixed_precision=bf16"),
        (
            ["parallel.strategy=zero2", "parallel.deepspeed={zero_optimization: {stage: 3}}"],
            "strategy is zero2",
        ),
        (["parallel.strategy=zero2", "parallel.deepspeed={gradient_clipping: 0.5}"], "train.gradient_clipping is 1.0"),
    ],
)
def test_contradictions(base, overrides, expected):
    with pytest.raises(ConfigError, match=expected):
        load_config([base], overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["parallel.deepspeed={bf16: {enabled: true}}"],
        ["parallel.deepspeed={bf16: {enabled: auto}, gradient_clipping: auto}"],
        ["model.head.dtype=bfloat16"],
        ["parallel.mixed_precision=fp32"],
        ["parallel.strategy=zero3", "parallel.deepspeed={zero_optimization: {stage: 3, overlap_comm: true}}"],
    ],
)
def test_agreement(base, overrides):
    load_config([base], overrides)


def test_variable_of_accelerate(base, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    with pytest.raises(ConfigError, match="unset the variable"):
        load_config([base])
    load_config([base], ["parallel.mixed_precision=fp32"])
