"""GR00T N1.7 on the simulated CANN: the published trainer's numbers, recorded actions, and a run of the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.ascend_sim
DATA = Path(__file__).parents[1] / "data" / "groot"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, simulate_in) -> Path:
    """What the program left behind on each backend."""
    folder = tmp_path_factory.mktemp("groot")
    for backend in ("ascend", "cpu"):
        done = simulate_in(folder)("groot_runs.py", backend, env={"DS_ACCELERATOR": "npu"})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "ascend.json").read_text())


def test_six_steps_of_the_published_trainer(found) -> None:
    facts = json.loads((DATA / "train6.json").read_text())
    for step, entry, loss in zip(found["steps"], facts["history"], facts["exact_loss"], strict=True):
        assert step["loss"] == pytest.approx(loss, abs=2e-5)
        assert step["grad_norm"] == pytest.approx(entry["grad_norm"], rel=1e-4)
    for name, norm in facts["final_norm"].items():
        if not name.endswith("attn1.to_k.bias"):  # Adam makes whole steps of a gradient that is nothing but rounding
            assert found["norms"][name] == pytest.approx(norm, rel=1e-4), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_actions(found, precision: str) -> None:
    wanted = load_file(DATA / "full_action.safetensors")["out.action_pred"]
    assert found[precision]["device"] == "npu:0"
    error = np.abs(np.array(found[precision]["values"]) - wanted)
    if precision == "fp32":
        assert error.max() < 1e-4
    else:
        assert 1e-3 < error.mean() < 0.05, "close to fp32's numbers, yet not those"


def test_a_run_has_the_losses_of_the_cpu(folder: Path) -> None:
    logs = [
        [json.loads(line) for line in (folder / name / "run" / "metrics.jsonl").read_text().splitlines()]
        for name in ("ascend", "cpu")
    ]
    trained = [[entry["action_loss"] for entry in log if "action_loss" in entry] for log in logs]
    assert len(trained[0]) == 4
    assert trained[0] == pytest.approx(trained[1], abs=1e-5)
    errors = [[entry["eval/normalised_error"] for entry in log if "eval/normalised_error" in entry] for log in logs]
    assert len(errors[0]) == 1
    assert errors[0] == pytest.approx(errors[1], abs=1e-4)
