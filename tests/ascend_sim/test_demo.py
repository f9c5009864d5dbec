"""The demo's DiT4DiT trained through the engine on the simulated CANN: 20 steps beside the same 20 of the CPU backend.

All runs draw their noise on the host, so that both devices see the same. The CPU's runs are in this environment too,
where torch_npu is installed but cannot be loaded.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from vla_train.checkpoint.weights import consolidated

pytestmark = pytest.mark.ascend_sim
NPU = {"VLA_BACKEND": "ascend", "DS_ACCELERATOR": "npu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
CPU = {"VLA_BACKEND": "cpu", "DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
LOSSES = ("action_loss", "future_video_loss", "total_loss")
HALF = "steps=4,save=2,precision=bf16,draws=device"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, simulate_in) -> Path:
    """Runs of one rank; the folder that holds them."""
    folder = tmp_path_factory.mktemp("one")
    go(simulate_in(folder), "cpu", env=CPU, simulated=False)
    islands = [f"islands_{state}:steps=1,precision=bf16,islands={state}" for state in ("on", "off")]
    half = [f"half:{HALF}", f"half_resumed@half:{HALF}"]
    go(
        simulate_in(folder),
        "npu",
        "resumed@npu",
        "to_npu@cpu",
        "composed:steps=3,fused=false",
        *half,
        *islands,
        env=NPU,
    )
    go(simulate_in(folder), "to_cpu@npu", env=CPU, simulated=False)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, simulate_in) -> Path:
    """Runs of two ranks."""
    folder = tmp_path_factory.mktemp("two")
    go(simulate_in(folder), "cpu", env=CPU, simulated=False, processes=2)
    zero3 = ("zero3:strategy=zero3,eval=10", "resumed@zero3:strategy=zero3")
    todo = ("ddp:eval=10", "zero2:strategy=zero2", *zero3)
    go(simulate_in(folder), *todo, env=NPU, options=("--devices", "2"), processes=2)
    return folder


def go(run: Any, *runs: str, **options: Any) -> None:
    done = run("demo_runs.py", *runs, timeout=900, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def steps(run: Path) -> list[dict[str, Any]]:
    """The records of the training steps; those of evaluations are left out."""
    records = [json.loads(line) for line in (run / "run" / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if "total_loss" in record]


def assert_same_losses(mine: Path, theirs: Path, tolerance: float = 1e-4) -> None:
    own = {record["step"]: record for record in steps(mine)}
    assert list(own) == list(range(1, 21))
    for expected in steps(theirs):
        for name in LOSSES:
            got = own[expected["step"]][name]
            assert got == pytest.approx(expected[name], abs=tolerance), (mine.name, expected["step"], name)


def actions(run: Path, rank: int = 0) -> list[float]:
    return json.loads((run / f"actions-{rank}.json").read_text())


def weights(run: Path, step: int = 20) -> dict[str, torch.Tensor]:
    return consolidated(run / "run" / "checkpoints" / f"step_{step:08d}")


def assert_same_weights(mine: Path, theirs: Path, step: int = 20) -> None:
    found, expected = weights(mine, step), weights(theirs, step)
    assert found.keys() == expected.keys()
    assert not [name for name in found if not torch.equal(found[name], expected[name])]


def device(run: Path) -> str:
    return json.loads((run / "run" / "decisions.json").read_text())["device"]


def test_one_npu(one: Path) -> None:
    assert (device(one / "npu"), device(one / "cpu")) == ("npu:0", "cpu")
    assert_same_losses(one / "npu", one / "cpu")
    assert actions(one / "npu") == pytest.approx(actions(one / "cpu"), abs=1e-4)


def test_training_moves_the_losses_by_more_than_the_tolerance(one: Path) -> None:
    """Equal losses would mean little if nothing had been learnt."""
    first, last = weights(one / "npu", 10), weights(one / "npu", 20)
    assert max((first[name] - last[name]).abs().max().item() for name in first) > 1e-3


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
def test_two_npus(two: Path, strategy: str) -> None:
    assert device(two / strategy) == "npu:0"
    assert_same_losses(two / strategy, two / "cpu")
    for rank in (0, 1):
        assert actions(two / strategy, rank) == pytest.approx(actions(two / "cpu"), abs=1e-4)


def test_evaluation_under_zero3(two: Path) -> None:
    """Twice during training, whose losses are those of a run without; the errors are those of data parallelism."""
    for step in (10, 20):
        reports = [
            json.loads((two / run / "run" / "plots" / f"eval_step_{step:08d}.json").read_text())
            for run in ("zero3", "ddp")
        ]
        sharded, replicated = (dict(numbers(report)) for report in reports)
        assert len(sharded) > 3
        assert sharded == pytest.approx(replicated, abs=1e-4)


def numbers(value: Any, path: str = "") -> list[tuple[str, float]]:
    """Every number of a report with its path, but for times."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in numbers(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [pair for index, inner in enumerate(value) for pair in numbers(inner, f"{path}.{index}")]
    timed = any(word in path for word in ("second", "time"))
    return [(path, value)] if isinstance(value, (int, float)) and not timed else []


def test_resume_on_the_same_devices_is_exact(one: Path, two: Path) -> None:
    assert_same_weights(one / "resumed", one / "npu")
    assert_same_weights(two / "resumed", two / "zero3")
    # The device's own random numbers and bfloat16: the state of the device's generator is in the checkpoint.
    assert_same_weights(one / "half_resumed", one / "half", step=4)


@pytest.mark.parametrize(("run", "origin"), [("to_cpu", "cpu"), ("to_npu", "npu")])
def test_checkpoints_cross_devices(one: Path, run: str, origin: str) -> None:
    assert device(one / run) == ("cpu" if run == "to_cpu" else "npu:0")
    assert_same_losses(one / run, one / origin)
    assert actions(one / run) == pytest.approx(actions(one / origin), abs=1e-4)


def test_fused_operators_are_used_and_one_switch_leaves_them_out(one: Path) -> None:
    """The rate of the first steps does not depend on the length of the run, so that three can be compared."""
    used, left_out = (
        json.loads((one / run / "run" / "decisions.json").read_text()).get("fused_kernels")
        for run in ("npu", "composed")
    )
    assert used["attention"] > 0
    assert used["rms_norm"] > 0
    assert not left_out
    for mine, theirs in zip(steps(one / "composed"), steps(one / "npu"), strict=False):
        assert mine["total_loss"] == pytest.approx(theirs["total_loss"], abs=1e-5)


def test_a_step_takes_at_most_two_and_a_half_times_the_cpus_processor_time(one: Path) -> None:
    mine, theirs = (json.loads((one / run / "seconds-0.json").read_text()) for run in ("npu", "cpu"))
    assert mine <= 2.5 * theirs, (mine, theirs)


PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_overrideable", "linear", "matmul")


def products(one: Path, run: str, place: str) -> dict[str, int]:
    """Dtypes of matrix products and convolutions, counted."""
    found: dict[str, int] = {}
    for key, count in json.loads((one / run / "dtypes.json").read_text())[place].items():
        operator, _, dtypes = key.partition(" ")
        if operator in PRODUCTS:
            found[dtypes] = found.get(dtypes, 0) + count
    return found


def test_float32_regions_are_float32_under_bfloat16(one: Path) -> None:
    inside, outside = products(one, "islands_on", "inside"), products(one, "islands_on", "outside")
    assert inside.keys() == {"torch.float32"}
    assert inside["torch.float32"] > 20
    # What is not in such a region is in bfloat16 by torch_npu's lists of operators.
    assert outside["torch.bfloat16"] > 20
    # The record does see it when a region does nothing.
    assert products(one, "islands_off", "inside")["torch.bfloat16"] > 20


def test_norms_stay_in_float32_by_torch_npus_lists(one: Path) -> None:
    recorded = json.loads((one / "islands_on" / "dtypes.json").read_text())["outside"]
    norms = {key: count for key, count in recorded.items() if key.startswith("native_layer_norm")}
    assert norms
    assert all(key.endswith("torch.float32") for key in norms), norms


def test_disk_is_given_back(one: Path, two: Path) -> None:
    """Last in the file: checkpoints of a dozen runs are not kept for the length of the session."""
    for folder in (one, two):
        shutil.rmtree(folder)
