"""The traced backend answers what the one behind it answers, and writes down every call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vla_backend import Candidate, activate
from vla_backend_traced.wrapper import TracedPlugin


@pytest.fixture
def candidate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Candidate:
    monkeypatch.setenv("VLA_TRACE_DIR", str(tmp_path))
    return Candidate("traced", "vla-backend-traced", "0.1.0", "vla_backend_traced:plugin")


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in folder.glob("trace-*.jsonl") for line in path.read_text().splitlines()]


def test_answers_are_those_of_the_backend_behind(candidate: Candidate, tmp_path: Path) -> None:
    traced, cpu = activate(candidate), activate("cpu")
    for backend in (traced, cpu):
        backend.load_stack()
        backend.local_device(0)
    for name in ("device_type", "dist_backend", "pin_memory_ok", "dataloader_defaults", "video_ctx", "autocast_device"):
        assert getattr(traced, name) == getattr(cpu, name), name
    assert traced.compute_dtype("bf16") is cpu.compute_dtype("bf16")
    assert traced.info.priority < cpu.info.priority
    hooks = [line["hook"] for line in lines(tmp_path)]
    assert hooks.index("load_stack") < hooks.index("local_device") < hooks.index("autocast_device")
    assert all(line["seconds"] >= 0 and line["by"] == "cpu" for line in lines(tmp_path))


def test_a_default_of_the_backend_behind_is_traced_too(candidate: Candidate, tmp_path: Path) -> None:
    assert activate("cpu").providers()["visible_devices_env"] == "default"
    assert activate(candidate).visible_devices_env == ""
    assert "visible_devices_env" in [line["hook"] for line in lines(tmp_path)]


def test_an_error_is_written_and_goes_on(candidate: Candidate, tmp_path: Path) -> None:
    backend = activate(candidate)
    backend.load_stack()
    with pytest.raises(ValueError, match="fp7"):
        backend.compute_dtype("fp7")
    assert "fp7" in str(lines(tmp_path)[-1]["error"])


def test_it_cannot_trace_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLA_TRACED", "traced")
    with pytest.raises(Exception, match="cannot trace itself"):
        TracedPlugin()
