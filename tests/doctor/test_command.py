"""`vla doctor` as a user runs it: on a sound environment, and where torch itself is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def doctor(*arguments: str, path: Path | None = None, **env: str) -> tuple[int, dict[str, Any], str]:
    environment = {name: value for name, value in os.environ.items() if name != "VLA_BACKEND"}
    environment |= {"OMP_NUM_THREADS": "1", **env}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-m", "vla_train.cli", "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout), done.stderr


def by_name(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in found["checks"]}


def test_a_sound_machine() -> None:
    code, found, _ = doctor("--backend", "cpu")
    checks = by_name(found)
    assert [check for check in found["checks"] if check["outcome"] == "failed"] == []
    assert (code, found["ok"]) == (0, True)
    assert found["seconds"] < 60
    assert "cosine" in checks["step"]["detail"]
    assert "gave 10 frames back" in checks["frames"]["detail"]
    assert "summed 4 MiB" in checks["collective"]["detail"]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A torch whose metadata is in order and which cannot be imported, as with another libc or a missing library."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    (package / "__init__.py").write_text("raise ImportError('libtorch_cpu.so: undefined symbol: mend_me')\n")
    return tmp_path


def test_torch_that_cannot_be_imported_is_one_finding(broken: Path) -> None:
    code, found, _ = doctor("--backend", "cpu", path=broken)
    checks = by_name(found)
    runtime = checks["runtime"]
    assert (code, found["ok"]) == (1, False)
    assert runtime["outcome"] == "failed"
    assert "mend_me" in runtime["detail"]
    for name in ("frames", "step", "collective"):
        assert checks[name]["outcome"] == "skipped"
    # Everything that needs no torch is still told.
    for name in ("python", "transformers", "devices", "ports", "compiler", "shared memory", "disk"):
        assert checks[name]["outcome"] in ("ok", "warning"), name


def test_a_host_without_npus_says_so() -> None:
    if list(Path("/dev").glob("davinci*")):
        pytest.skip("this machine has NPUs")
    code, found, _ = doctor("--backend", "ascend")
    checks = by_name(found)
    assert code == 1
    assert "davinci" in checks["npu nodes"]["detail"]
    assert "set_env.sh" in checks["CANN"]["remedy"]
    assert checks["collective"]["outcome"] == "skipped"


def test_a_plugin_check_that_breaks_is_a_finding(monkeypatch) -> None:
    from vla_train.doctor import examine

    class Entry:
        value = "somebody:checks"

        @staticmethod
        def load():
            def checks(env):
                yield examine.Check("first", "ok", "fine")
                raise ValueError("oops")

            return checks

    monkeypatch.setattr(examine.metadata, "entry_points", lambda **_: [Entry()])
    found = list(examine.plugin_checks("cpu", {}))
    assert [check.outcome for check in found] == ["ok", "failed"]
    assert "oops" in found[1].detail


def test_a_child_that_hangs_is_ended(monkeypatch) -> None:
    import time

    from vla_train.doctor.children import launch

    started = time.monotonic()
    child = launch("hanging", [sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    child.wait(time.monotonic() + 0.5)
    assert time.monotonic() - started < 20
    assert child.check("hanging").outcome == "failed"
    assert "time limit" in child.problem
    crashed = launch("crashing", [sys.executable, "-c", "import os; os.abort()"], os.environ)
    crashed.wait(time.monotonic() + 20)
    assert "SIGABRT" in crashed.check("crashing").detail
