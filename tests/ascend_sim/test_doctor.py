"""`vla doctor` with NPUs before it, and `vla estimate` against what their allocator counted (simulated CANN)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ascend_sim
ENV = {"DS_ACCELERATOR": "npu"}


def doctor(*arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "vla_train.cli", "doctor", "--backend", "ascend", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
    )
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def test_two_npus_are_found_sound() -> None:
    code, found = doctor("--processes", "2")
    checks = {check["name"]: check for check in found["checks"]}
    assert [check for check in found["checks"] if check["outcome"] == "failed"] == []
    assert code == 0
    assert found["seconds"] < 60
    assert "2 NPUs healthy" in checks["npu-smi"]["detail"]
    assert "hccl on npu" in checks["collective"]["detail"]
    assert "npu:0" in checks["step"]["detail"]
    assert "finds all it needs" in checks["libraries"]["detail"]


def test_a_toolkit_that_was_not_sourced() -> None:
    """Told from files: inside the simulation the libraries are loaded by other means, so that the import succeeds."""
    folders = os.environ["LD_LIBRARY_PATH"].split(os.pathsep)
    without = os.pathsep.join(folder for folder in folders if not Path(folder, "libhccl.so").exists())
    code, found = doctor("--processes", "2", LD_LIBRARY_PATH=without)
    failed = {check["name"]: check for check in found["checks"] if check["outcome"] == "failed"}
    assert code == 1
    assert "libhccl.so" in failed["libraries"]["detail"]
    assert "set_env.sh" in failed["libraries"]["remedy"]
    assert {"CANN", "devices"} <= failed.keys()


def peaks(folder: Path) -> dict[str, int]:
    return {path.stem: json.loads(path.read_text())["peak"] for path in folder.glob("*.json")}


TWO = ("dit4dit:zero2:bf16:2", "dit4dit:zero3:bf16:2", "groot:zero2:bf16:2", "groot:zero3:bf16:2")
ONE = ("dit4dit:ddp:fp32:1", "dit4dit:ddp:bf16:1", "groot:ddp:bf16:1")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, simulate_in) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("peaks")
    run = simulate_in(folder)
    for done in (
        run("peaks.py", "estimated", *ONE, *TWO, env=ENV),
        run("peaks.py", "measured", *ONE, env=ENV),
        # DeepSpeed keeps what it made until the process ends.
        *(run("peaks.py", "measured", job, options=("--devices", "2"), processes=2, env=ENV) for job in TWO),
    ):
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return peaks(folder)


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_estimates_are_within_a_tenth_of_the_measured_peak(found: dict[str, int], name: str) -> None:
    key = name.replace(":", "-")
    estimated = found[f"estimated-{key}-0"]
    measured = max(value for file, value in found.items() if file.startswith(f"measured-{key}-"))
    assert estimated == pytest.approx(measured, rel=0.1)
