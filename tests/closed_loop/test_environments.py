"""Finding environments, and what is said when one cannot be had."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from vla_train.closed_loop import metaworld
from vla_train.closed_loop.environments import SimulatorError, find
from vla_train.closed_loop.worker import environment_options, slug
from vla_train.config.schema import Config
from vla_train.data.config import DataConfig, DatasetConfig

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "data"


def install(folder: Path) -> None:
    """A third party's distribution with an environment, as pip would leave it."""
    info = folder / "slider_environment-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slider-environment\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vla_train.environments]\nslider = slider:entry\n")
    shutil.copy(HERE / "slider.py", folder / "slider.py")


def test_a_third_party_environment_is_found_by_its_entry_point(tmp_path, monkeypatch):
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        entry, task = find("slider:right")
        environment = entry.make(task, {"size": 32})
        assert environment.reset(0).video["top"].shape == (32, 32, 3)
        monkeypatch.setenv("SLIDER_MISSING", "pip install slides")
        with pytest.raises(SimulatorError, match="'slider' cannot run here: pip install slides"):
            entry.make(task, {})
    finally:
        sys.modules.pop("slider", None)


def test_names_that_do_not_exist():
    with pytest.raises(SimulatorError, match="did you mean 'metaworld:push-v3'"):
        find("metawold:push-v3")
    with pytest.raises(SimulatorError, match=r"installed: .*metaworld"):
        find("isaac:push-v3")
    for text in ("metaworld", "metaworld:", "push-v3"):
        with pytest.raises(SimulatorError, match="NAME:TASK"):
            find(text)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    entry, task = find("metaworld:push-v3")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(SimulatorError, match=r"pip install 'metaworld==3\.1\.1'.*\.\[sim\]") as error:
        entry.make(task, {})
    assert len(str(error.value).splitlines()) == 1
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(metaworld.sys, "platform", "linux")
    monkeypatch.setattr(metaworld.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(SimulatorError, match=r"libEGL.*apt-get install -y libegl1") as error:
        entry.make(task, {})
    assert len(str(error.value).splitlines()) == 1


def config_of(root: Path, *names: str) -> Config:
    return Config(data=DataConfig(root=str(root), datasets=[DatasetConfig(path=name) for name in names]))


def test_the_training_set_says_how_pictures_are_taken(tmp_path):
    config = config_of(EXAMPLES, "metaworld_button_press_topdown")
    options, note = environment_options(config, "metaworld", {"size": 64})
    assert options == {
        "camera": "topview",
        "camera_name": "top",
        "crop": [0.18, 0.0, 0.64],
        "size": 64,
        "instruction": "press the button from the top",
    }
    assert "overridden" in note
    assert environment_options(config, "slider", {"size": 8})[0] == {"size": 8}
    assert "no training set says" in environment_options(config_of(tmp_path, "a"), "metaworld", {})[1]
    assert slug("metaworld:push-v3") == "metaworld_push-v3"


def test_state_parts_are_the_start_of_the_observation():
    parts = metaworld.split_state(np.arange(39.0))
    assert {name: value.tolist() for name, value in parts.items()} == {
        "eef_position": [0.0, 1.0, 2.0],
        "gripper": [3.0],
    }
