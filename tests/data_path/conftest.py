from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vla_backend import VideoContext
from vla_train.data.config import DataConfig, DatasetConfig

SETS = Path(__file__).parents[1] / "data" / "lerobot"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Statistics of one test never reach another, or the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def golden() -> dict[str, np.ndarray]:
    with np.load(SETS / "golden" / "data_path.npz") as file:
        return dict(file)


@pytest.fixture(scope="session")
def facts() -> dict[str, Any]:
    return json.loads((SETS / "golden" / "data_path.json").read_text())


@pytest.fixture(scope="session")
def golden_file():
    return lambda name: json.loads((SETS / "golden" / name).read_text())


@pytest.fixture
def pyav() -> VideoContext:
    return VideoContext(("pyav",))


@pytest.fixture
def config():
    """A configuration of the shape `build_dataset` reads; keyword arguments replace fields of its data section."""

    def make(horizon: int = 8, resize_on_device: bool = False, **changes: Any) -> SimpleNamespace:
        settings: dict[str, Any] = {
            "root": str(SETS),
            "datasets": [DatasetConfig("tiny_libero", 1.0, "libero_franka")],
            "video_delta_indices": list(range(9)),
            "action_video_freq_ratio": 2,
            "max_state_dim": 16,
            "max_action_dim": 8,
            "check": "off",  # what reading does about bad data is another test's matter
        }
        data = DataConfig(**{**settings, **changes})
        head = SimpleNamespace(action_horizon=horizon)
        return SimpleNamespace(data=data, model=SimpleNamespace(action_head=head, resize_on_device=resize_on_device))

    return make


@pytest.fixture
def copy_set(tmp_path):
    """A copy of the small LIBERO set that a test may damage, under another name if it wants several."""

    def make(name: str = "copy") -> Path:
        return Path(shutil.copytree(SETS / "tiny_libero", tmp_path / name))

    return make
