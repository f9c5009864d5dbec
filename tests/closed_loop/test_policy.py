"""A policy sees in an environment what it saw in training, and its actions are those of the training set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vla_backend import activate
from vla_dit4dit.config import DiT4DiTConfig
from vla_dit4dit.data.batch import collate
from vla_dit4dit.data.dataset import build_dataset
from vla_train.closed_loop.environments import Observation, SimulatorError
from vla_train.closed_loop.policy import Policy, blinded
from vla_train.config.schema import Config
from vla_train.data.config import DataConfig, DatasetConfig

SHIPPED = Path(__file__).parents[2] / "examples" / "data" / "metaworld_button_press_topdown"


class Constant(nn.Module):
    """Predicts `value`, normalised, plus the first state value; counts and checks what it is given."""

    def __init__(self, value):
        super().__init__()
        self.value, self.batches = torch.tensor(value), []

    def predict_action(self, batch, generator=None):
        assert not self.training
        assert not torch.is_grad_enabled()
        self.batches.append(batch)
        return self.value.expand(1, 8, 4).clone()


@pytest.fixture(scope="module")
def backend():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


@pytest.fixture(scope="module")
def dataset(backend):
    data = DataConfig(
        datasets=[DatasetConfig(str(SHIPPED))],
        holdout_episodes=3,
        image_size=[32, 32],
        video_delta_indices=[0, 2, 4],
        max_state_dim=6,
        max_action_dim=4,
        check="off",
    )
    return build_dataset(Config(model=DiT4DiTConfig(), data=data), backend.video_ctx, "train")


def recorded(dataset, episode, step):
    """The observation that was recorded at a step."""
    window = dataset.sources[0].window(dataset.sources[0].episodes[episode], step)
    state = {name: rows[0] for name, rows in window.state.items()}
    return Observation({name: frames[0] for name, frames in window.video.items()}, state, window.language)


def test_the_live_sample_is_that_of_training(dataset):
    for episode, step in ((0, 0), (4, 17)):
        live = dataset.live_sample(0, [recorded(dataset, episode, step)])
        trained = dataset.sample(0, dataset.sources[0].episodes[episode], step)
        assert torch.equal(live["images"][0], trained["images"][0])
        np.testing.assert_array_equal(live["state"], trained["state"])
        assert live["lang"] == trained["lang"]
        assert live["images"].shape == trained["images"].shape
        # The future is not known: it shows the present.
        assert all(torch.equal(frame, live["images"][0]) for frame in live["images"])
        assert live["action"].shape == trained["action"].shape


def test_actions_come_back_in_the_units_and_parts_of_the_set(dataset, backend):
    model = Constant([1.0, -1.0, 0.0, 0.0]).train()
    policy = Policy(model, dataset, collate, backend)
    actions = policy([recorded(dataset, 0, 0)], torch.Generator())
    low, high = (np.array(dataset.statistics[policy.tag]["action"][name]) for name in ("min", "max"))
    assert len(actions) == 8
    assert [{name: value.shape for name, value in action.items()} for action in actions] == [
        {"eef_delta": (3,), "gripper": (1,)}
    ] * 8
    wanted = [high[0], low[1], (low[2] + high[2]) / 2]
    np.testing.assert_allclose(actions[3]["eef_delta"], wanted, atol=1e-6)
    assert model.training


def test_black_pictures_are_all_that_differs(dataset, backend):
    model = Constant([0.0] * 4)
    policy = Policy(model, dataset, collate, backend)
    seen = recorded(dataset, 0, 5)
    for observation in (seen, blinded(seen)):
        policy([observation], torch.Generator())
    sighted, blind = model.batches
    assert sighted["images"].any()
    assert not blind["images"].any()
    assert torch.equal(sighted["state"], blind["state"])


def test_an_environment_that_does_not_fit_is_an_error(dataset):
    seen = recorded(dataset, 0, 0)
    with pytest.raises(SimulatorError, match=r"no camera top.*\n.*wrist"):
        dataset.live_sample(0, [Observation({"wrist": seen.video["top"]}, seen.state, "")])
    with pytest.raises(SimulatorError, match="no state part gripper"):
        dataset.live_sample(0, [Observation(seen.video, {"eef_position": seen.state["eef_position"]}, "")])
    with pytest.raises(SimulatorError, match=r"shape \(7,\) here and \(3,\)"):
        dataset.live_sample(0, [Observation(seen.video, {**seen.state, "eef_position": np.zeros(7)}, "")])
    with pytest.raises(SimulatorError, match=r"no live_sample\(\)"):
        Policy(nn.Identity(), object(), collate, None)
