from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def child_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes import the broken plugins."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))


@pytest.fixture
def installed(child_path: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution that provides two of the plugins under the names `sound` and `broken`."""
    info = tmp_path / "vla_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vla-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vla_backend.plugins]\n"
        "sound = tests.conformance.broken.sound:Absent\n"
        "broken = tests.conformance.broken.before_torch:NoneAnswer\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    return tmp_path
