"""The endpoints of the published server, in process and behind `vla serve`."""

from __future__ import annotations

import socket
import subprocess
import sys

import numpy as np
import pytest

from vla_groot.embodiments import BUILT_IN
from vla_groot.errors import EmbodimentError, ProcessorError
from vla_groot.observation import nested
from vla_groot.policy import GrootPolicy
from vla_groot.serving import served_tag
from vla_train import models
from vla_train.config import load_config
from vla_train.serve.worker import load_policy
from vla_train.serve.zmq_client import ZmqPolicyClient

from .conftest import DATA
from .test_policy import TASK, observation

SETTINGS = ("--base-model", str(DATA / "checkpoint"), "--embodiment-tag", "LIBERO_PANDA")


@pytest.fixture(scope="module")
def policy(backend):
    config, _ = load_config([], [*SETTINGS, "parallel.mixed_precision=fp32"], "groot", unchecked=("data",))
    return load_policy(config, models.find("groot"), backend, None, None)


@pytest.fixture
def sent(tensors, facts):
    return observation(tensors("process_observation"), facts)


def test_a_base_checkpoint_is_served_as_it_is(policy, backend, sent):
    wanted, _ = GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend, dtype="fp32").get_action(sent, {"seed": 3})
    found, info = policy({"endpoint": "get_action", "observation": sent, "options": {"seed": 3}})
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)
    assert info["normalized"].shape == (2, 16, 18)


def test_in_bfloat16_too(backend, sent):
    config, _ = load_config([], [*SETTINGS, "parallel.mixed_precision=bf16"], "groot", unchecked=("data",))
    wanted, _ = GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend).get_action(sent, {"seed": 3})
    found, _ = load_policy(config, models.find("groot"), backend, None, None)(
        {"observation": sent, "options": {"seed": 3}}
    )
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)


def test_flat_keys_of_simulators(policy, sent):
    flat = {f"video.{key}": value for key, value in sent["video"].items()}
    flat |= {f"state.{key}": value for key, value in sent["state"].items()}
    flat[TASK] = tuple(texts[0] for texts in sent["language"][TASK])
    wanted, _ = policy({"observation": sent, "options": {"seed": 3}})
    found, _ = policy({"observation": flat, "options": {"seed": 3}})
    assert found.keys() == {f"action.{key}" for key in wanted}
    np.testing.assert_array_equal(found["action.x"], wanted["x"])


def test_the_coarse_action_is_the_task_where_it_is_given():
    embodiment = BUILT_IN["robocasa_gr1_tabletop"]
    assert nested({"task": ("fine",)}, embodiment)["language"] == {"task": ["fine"]}
    both = {"task": ("fine",), "annotation.human.coarse_action": ("coarse",)}
    assert nested(both, embodiment)["language"] == {"task": ["coarse"]}


def test_other_endpoints(policy):
    assert policy({"endpoint": "reset", "options": None}) == {}
    configs = policy({"endpoint": "get_modality_config"})
    assert configs["video"]["__ModalityConfig__"] is True
    assert configs["action"]["as_json"]["modality_keys"] == ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    with pytest.raises(ProcessorError, match="Unknown endpoint: dance"):
        policy({"endpoint": "dance"})
    with pytest.raises(ProcessorError, match="no 'observation'"):
        policy({"endpoint": "get_action"})


def test_which_embodiment_is_served(policy, backend):
    processor = GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend).processor
    assert served_tag("new_embodiment", processor, ["libero_sim"]) == "libero_sim"
    assert served_tag("LIBERO_PANDA", processor, ["libero_sim", "new_embodiment"]) == "libero_sim"
    with pytest.raises(EmbodimentError, match=r"choose one: model\.embodiment_tag=a"):
        served_tag("libero_sim", processor, ["a", "b"])


def test_vla_serve(sent):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--backend", "cpu", "--host", "127.0.0.1", "--port", str(port), "--idle-timeout", "120"]
    command = [sys.executable, "-m", "vla_train.cli", "serve", "--model", "groot", *SETTINGS, *options]
    server = subprocess.Popen(command)
    try:
        with ZmqPolicyClient("127.0.0.1", port, timeout=120) as client:
            assert client.ask("ping")["status"] == "ok"
            actions, _ = client.ask(observation=sent, options={"seed": 3})
            assert actions["x"].shape == (2, 16, 1)
            assert np.isfinite(actions["gripper"]).all()
            assert client.ask("get_modality_config")["state"]["as_json"]["delta_indices"] == [0]
            client.ask("kill")
        assert server.wait(60) == 0
    finally:
        server.kill()
