from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.thirdparty import install

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples installed: the out-of-tree device and its plugin, the tracing plugin, the model."""
    folder = tmp_path_factory.mktemp("examples") / "site"
    return install.install(folder, install.DEVICE, install.PAPER, install.TRACED, install.CLONING)


@pytest.fixture
def run_in(tmp_path: Path) -> Run:
    """run_in(site, "-m", "vla_train.cli", "backends", check=0): Python with `site` installed, in an empty folder."""

    def run(site: Path, *arguments: str, check: int | None = 0, cwd: Path = tmp_path, **env: str):
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=install.environment(site, XDG_CACHE_HOME=str(tmp_path / "cache"), **env),
            capture_output=True,
            text=True,
            timeout=240,
        )
        if check is not None:
            assert done.returncode == check, f"{arguments}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    return run
