"""The built-in backends: the CPU passes every tier, the others what applies on a machine without their chips."""

from __future__ import annotations

import pytest

from vla_backend import activate
from vla_train.conformance import TIERS, run


def test_cpu_passes_every_tier() -> None:
    results = run("cpu")
    assert {one.tier for one in results} == set(TIERS)
    assert not [one for one in results if one.outcome == "failed"], results
    assert {one.name for one in results if one.outcome == "skipped"} <= {
        "pinned_batch_arrives",
        "block_in_float16",
        "fused_attention",
        "fused_rms_norm",
        "fused_rotary",
    }


@pytest.mark.parametrize("name", ["cuda", "ascend"])
def test_contract_without_the_chip(name) -> None:
    if activate(name, check_available=False).probe().ok:
        pytest.skip("the chip is here: run `vla plugin check` on it")
    results = run(name, ["contract", "census"])
    assert not [one for one in results if one.outcome == "failed"], results
    skipped = [one for one in results if one.outcome == "skipped"]
    assert skipped
    assert all(one.message.startswith("no hardware: ") for one in skipped), skipped
    assert sum(one.outcome == "passed" for one in results) >= 10
