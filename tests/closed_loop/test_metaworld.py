"""The real simulator, where it is installed: instances, pictures, experts."""

from __future__ import annotations

import ctypes.util
import importlib.util
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

# Not imported here: mujoco takes its renderer from the environment when it is imported.
if not importlib.util.find_spec("metaworld"):
    pytest.skip("pip install '.[sim]' installs the simulator", allow_module_level=True)
if not ctypes.util.find_library("EGL") and not ctypes.util.find_library("OSMesa"):
    pytest.skip("neither libEGL nor libOSMesa is installed", allow_module_level=True)

from vla_train.closed_loop.environments import SimulatorError, find
from vla_train.closed_loop.worker import environment_options
from vla_train.config.schema import Config
from vla_train.data.config import DataConfig, DatasetConfig

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"
SHIPPED = EXAMPLES / "metaworld_button_press_topdown"
TASK = "metaworld:button-press-topdown-v3"


@pytest.fixture(scope="module")
def environment():
    config = Config(data=DataConfig(root=str(EXAMPLES), datasets=[DatasetConfig(path=SHIPPED.name)]))
    entry, task = find(TASK)
    options, _ = environment_options(config, entry.name, {})
    environment = entry.make(task, options)
    yield environment
    environment.close()


def test_seeds_are_instances_that_were_not_recorded(environment):
    first, other, again = (environment.reset(seed) for seed in (0, 1, 0))
    np.testing.assert_array_equal(first.video["top"], again.video["top"])
    assert (first.video["top"] != other.video["top"]).any()
    # The arm starts at one place, so nothing but the picture says where the button is.
    np.testing.assert_allclose(first.state["eef_position"], other.state["eef_position"], atol=1e-6)
    environment.reset(3)
    places = [environment.simulation.start(0, number)[4:7].round(6).tolist() for number in range(50)]
    for seed in range(20):
        environment.reset(seed)
        assert environment.simulation._env._get_obs()[4:7].round(6).tolist() not in places


def test_the_expert_solves_it_through_the_interface(environment):
    environment.reset(7)
    values = environment.simulation._env._get_obs()
    for _step in range(environment.max_steps):
        action = environment.simulation.expert(values)
        observation, solved = environment.step({"eef_delta": action[:3], "gripper": action[3:]})
        values = environment.simulation._env._get_obs()
        np.testing.assert_allclose(observation.state["eef_position"], values[:3], atol=1e-6)
        if solved:
            return
    raise AssertionError("the expert did not press the button")


def test_pictures_and_states_are_those_of_the_recording(environment):
    environment.simulation.start(0, 0)  # the first recorded instance
    picture = environment.simulation.render()
    with av.open(str(next((SHIPPED / "videos").rglob("episode_000000.mp4")))) as container:
        recorded = next(container.decode(video=0)).to_ndarray(format="rgb24")
    # h264 loses some colour; another camera, crop or instance differs by far more.
    assert np.abs(picture.astype(float) - recorded).mean() < 4
    environment.simulation.start(0, 1)
    assert np.abs(environment.simulation.render().astype(float) - recorded).mean() > 4
    table = pq.read_table(next((SHIPPED / "data").rglob("episode_000000.parquet")))
    state = np.concatenate(list(environment.reset(0).state.values()))
    np.testing.assert_allclose(state, table["observation.state"][0].as_py(), atol=1e-4)


def test_unknown_tasks_and_cameras():
    entry, _ = find(TASK)
    with pytest.raises(SimulatorError, match="did you mean button-press-topdown-v3"):
        entry.make("button-press-topdwn-v3", {})
    with pytest.raises(SimulatorError, match=r"no camera 'side'.*\n.*topview"):
        entry.make("button-press-topdown-v3", {"camera": "side"})
    with pytest.raises(SimulatorError, match=r"no option colour.*\n.*camera, camera_name, size"):
        entry.make("button-press-topdown-v3", {"colour": 1})
