"""The Ascend backend trains DiT4DiT on the simulated CANN: upstream's numbers, and checkpoints that cross devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train import golden
from vla_train.checkpoint.weights import consolidated

pytestmark = pytest.mark.ascend_sim
ENV = {"DS_ACCELERATOR": "npu"}
NAMES = {"action_loss": "action_dit_loss", "future_video_loss": "future_video_loss", "total_loss": "total_loss"}


def replays(folder: Path, done: Any) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory, simulate_in) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("one")
    found = replays(folder, simulate_in(folder)("recorded_steps.py", "ddp", "ddp:bf16", env=ENV))
    return {replay["precision"]: replay for replay in found}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, simulate_in) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    todo = ("ddp", "zero2", "zero3", "zero3:bf16")
    return replays(
        folder, simulate_in(folder)("recorded_steps.py", *todo, options=("--devices", "2"), processes=2, env=ENV)
    )


def assert_upstream(found: dict[str, Any], tolerance: float = 1e-4) -> None:
    tensors, log = golden.recorded()
    for step, upstream in zip(found["steps"], log, strict=False):
        for mine, theirs in NAMES.items():
            assert step[mine] == pytest.approx(upstream["metrics"][theirs], abs=tolerance)
        assert step["grad_norm"] == pytest.approx(upstream["grad_norm_before_clip"], rel=1e-4)
    weights = consolidated(Path(found["checkpoint"]))
    watched = {key.split(".param.", 1)[1]: value for key, value in tensors.items() if key.startswith("step2.param.")}
    assert len(watched) == 4
    for name, value in watched.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_upstreams_steps_on_one_npu(one_rank) -> None:
    assert one_rank["fp32"]["device"] == "npu:0"
    assert_upstream(one_rank["fp32"])


def test_bfloat16_is_on(one_rank) -> None:
    """Close to fp32, yet not fp32's numbers: autocast('npu') has taken part."""
    for half, whole in zip(one_rank["bf16"]["steps"], one_rank["fp32"]["steps"], strict=True):
        assert half["future_video_loss"] != whole["future_video_loss"]
        assert half["total_loss"] == pytest.approx(whole["total_loss"], rel=5e-3)


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
def test_upstreams_steps_on_two_npus(one_rank, two_ranks, strategy: str) -> None:
    found = [replay for replay in two_ranks if replay["strategy"] == strategy and replay["precision"] == "fp32"]
    assert [replay["device"] for replay in found] == ["npu:0", "npu:1"]
    for replay in found:
        assert_upstream(replay)
        # The evaluation after three steps, and a step after it, which ZeRO-3 must survive.
        assert replay["actions"] == pytest.approx(one_rank["fp32"]["actions"], abs=1e-4)
        assert replay["steps"][3]["total_loss"] == pytest.approx(one_rank["fp32"]["steps"][3]["total_loss"], abs=1e-4)


def test_zero3_in_bfloat16(one_rank, two_ranks) -> None:
    found = [replay for replay in two_ranks if replay["precision"] == "bf16"]
    assert len(found) == 2
    for replay in found:
        for half, whole in zip(replay["steps"], one_rank["fp32"]["steps"], strict=True):
            assert half["total_loss"] != whole["total_loss"]
            assert half["total_loss"] == pytest.approx(whole["total_loss"], rel=1e-2)


def test_runs_continue_on_the_other_device(simulate, tmp_path: Path) -> None:
    runs = {
        "npu": ("ascend:npu:6",),
        "resumed": ("ascend:resumed:3", "ascend:resumed:6"),
        "to_cpu": ("ascend:to_cpu:3", "cpu:to_cpu:6"),
        "to_npu": ("cpu:to_npu:3", "ascend:to_npu:6"),
        "cpu": ("cpu:cpu:6",),
    }
    order = [part for parts in runs.values() for part in parts]
    done = simulate("continued_runs.py", *order, env=ENV)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]

    def steps(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / name / "run" / "metrics.jsonl").read_text().splitlines()]

    def weights(name: str) -> dict[str, torch.Tensor]:
        return consolidated(tmp_path / name / "run" / "checkpoints" / "step_00000006")

    expected = steps("npu")
    assert [record["step"] for record in expected] == [1, 2, 3, 4, 5, 6]
    for name in ("resumed", "to_cpu", "to_npu", "cpu"):
        for mine, theirs in zip(steps(name), expected, strict=True):
            assert mine["total_loss"] == pytest.approx(theirs["total_loss"], abs=1e-6), (name, mine["step"])
    whole, resumed = weights("npu"), weights("resumed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)  # the same device: to the bit
