"""Serving: observations in, actions in the robot's units out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vla_groot.checkpoint import load_model
from vla_groot.errors import EmbodimentError, ProcessorError
from vla_groot.policy import GrootPolicy
from vla_train.nn import ReplayDraws

from .conftest import DATA, near, part

TASK = "annotation.human.action.task_description"
FEATURES = ("input_ids", "attention_mask", "pixel_values", "image_grid_thw")


@pytest.fixture(scope="module")
def policy(backend):
    return GrootPolicy.load(DATA / "checkpoint", "LIBERO_PANDA", backend, dtype="fp32")


@pytest.fixture
def recorded(tensors):
    return tensors("process_observation")


def observation(recorded, facts):
    values = {key: value.numpy() for key, value in part(recorded, "in.").items()}
    return {
        "video": part(values, "video."),
        "state": part(values, "state."),
        "language": {TASK: [[text] for text in facts("process_observation")["language"]]},
    }


def test_observation_as_recorded(policy, recorded, facts):
    batch, wanted = policy.batch(observation(recorded, facts)), part(recorded, "out.")
    assert set(batch) == set(wanted)
    for key, value in wanted.items():
        assert batch[key].dtype == value.dtype
        if key == "pixel_values":
            assert (batch[key] - value).abs().max() <= 1.01 * 2 / 255
            assert ((batch[key] - value).abs() > 1e-6).float().mean() < 0.02
        else:
            near(batch[key], value, 1e-6)


def test_actions_in_the_robots_units(policy, recorded, facts):
    wanted = observation(recorded, facts)
    actions, info = policy.get_action(wanted, {"seed": 3})
    assert {key: value.shape for key, value in actions.items()} == dict.fromkeys(
        ("x", "y", "z", "roll", "pitch", "yaw", "gripper"), (2, 16, 1)
    )
    assert all(value.dtype == np.float32 for value in actions.values())
    again, _ = policy.get_action(wanted, {"seed": 3})
    other, _ = policy.get_action(wanted, {"seed": 4})
    assert np.array_equal(actions["x"], again["x"])
    assert not np.array_equal(actions["x"], other["x"])
    stats = policy.processor.statistics["libero_sim"]["action"]["yaw"]
    low, high = stats["q01"][0], stats["q99"][0]
    expected = (info["normalized"][..., 5:6].clip(-1, 1) + 1) / 2 * (high - low) + low
    np.testing.assert_allclose(actions["yaw"], expected, atol=1e-6)


def test_a_batch_equals_the_recorded_whole_model(policy, tensors):
    recorded = tensors("full_action")
    batch = part(recorded, "in.")
    batch["pixel_values"] = tensors("processor_batch")["batch.pixel_values"]
    draws, policy.model.draws = policy.model.draws, ReplayDraws.from_tensors(recorded)
    found = policy.model.get_action(batch)
    policy.model.draws = draws
    decoded = policy.processor.decode_action(found[:1].numpy(), "libero_sim")
    for key, value in part(recorded, "decoded.libero_sim.").items():
        near(torch.from_numpy(decoded[key]), value)


def test_bfloat16_is_near(backend, policy, recorded, facts):
    low = GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend)
    assert low.model.head_dtype == torch.bfloat16
    wanted = observation(recorded, facts)
    exact, near_by = policy.get_action(wanted, {"seed": 1})[1], low.get_action(wanted, {"seed": 1})[1]
    difference = np.abs(exact["normalized"] - near_by["normalized"])
    assert difference.mean() < 0.1


def test_bfloat16_rounds_the_rotary_frequencies_as_published(backend, policy, recorded, facts):
    batch = {key: value for key, value in policy.batch(observation(recorded, facts)).items() if key in FEATURES}
    found = {}
    for exact in (False, True):
        low = GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend, exact_positions=exact)
        found[exact] = low.model.backbone(**batch).hidden
    # The published policy converts the whole model, buffers included.
    converted = load_model(DATA / "checkpoint", backend).backbone.to(torch.bfloat16)
    assert torch.equal(found[False], converted(**batch).hidden)
    assert not torch.equal(found[False], found[True])
    fine = GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend, dtype="fp32").model.backbone
    assert torch.equal(fine(**batch).hidden, policy.model.backbone(**batch).hidden)


def test_real_time_chunking(policy, recorded, facts):
    wanted = observation(recorded, facts)
    _, before = policy.get_action(wanted, {"seed": 1})
    options = {
        "seed": 2,
        "action": before["normalized"],
        "action_horizon": 16,
        "rtc_overlap_steps": 8,
        "rtc_frozen_steps": 3,
        "rtc_ramp_rate": 4.0,
    }
    _, after = policy.get_action(wanted, options)
    np.testing.assert_array_equal(after["normalized"][:, :3], before["normalized"][:, 8:11])
    assert not np.array_equal(after["normalized"][:, 3:8], before["normalized"][:, 11:])


def test_evaluation_leaves_the_mode_alone(policy, recorded, facts):
    policy.model.train()
    first, _ = policy.get_action(observation(recorded, facts), {"seed": 1})
    assert policy.model.training
    policy.model.eval()
    second, _ = policy.get_action(observation(recorded, facts), {"seed": 1})
    assert np.array_equal(first["x"], second["x"])


def test_relative_actions_refer_to_the_last_state(policy):
    from vla_groot.modality import ActionConfig, ModalityConfig

    made = policy.processor
    config = made.embodiments["libero_sim"]["action"]
    changed = ModalityConfig(
        config.delta_indices,
        config.modality_keys,
        action_configs=[
            ActionConfig.parse({"rep": "RELATIVE" if key == "x" else "ABSOLUTE"}) for key in config.modality_keys
        ],
    )
    stats = made.statistics["libero_sim"]
    per_step = {key: np.tile(np.asarray(value), (16, 1)).tolist() for key, value in stats["action"]["x"].items()}
    made.embodiments["libero_sim"] = {**made.embodiments["libero_sim"], "action": changed}
    stats["relative_action"] = {"x": per_step}
    try:
        states = {key: np.zeros((2, 1, 2 if key == "gripper" else 1), np.float32) for key in config.modality_keys}
        at_zero = made.decode_action(np.zeros((2, 16, 18), np.float32), "libero_sim", states)
        states["x"] = np.asarray([[[1.0]], [[5.0]]], np.float32)
        moved = made.decode_action(np.zeros((2, 16, 18), np.float32), "libero_sim", states)
        np.testing.assert_allclose(moved["x"] - at_zero["x"], np.broadcast_to(states["x"], (2, 16, 1)))
        np.testing.assert_array_equal(moved["y"], at_zero["y"])
    finally:
        made.embodiments["libero_sim"] = {**made.embodiments["libero_sim"], "action": config}
        del stats["relative_action"]


class TestErrors:
    def test_embodiment(self, backend):
        with pytest.raises(EmbodimentError, match="did you mean"):
            GrootPolicy.load(DATA / "checkpoint", "libero", backend)
        with pytest.raises(EmbodimentError, match="was not trained on 'robocasa_gr1_tabletop'"):
            GrootPolicy.load(DATA / "checkpoint", "robocasa_gr1_tabletop", backend)

    def test_observation(self, policy, recorded, facts):
        wanted = observation(recorded, facts)
        with pytest.raises(ProcessorError, match="lacks language"):
            policy.get_action({key: value for key, value in wanted.items() if key != "language"})
        broken = {**wanted, "video": {**wanted["video"], "image": wanted["video"]["image"].astype(np.float32)}}
        with pytest.raises(ProcessorError, match=r"'image' is \(2, 1, 80, 80, 3\) float32"):
            policy.get_action(broken)
        broken = {**wanted, "state": {**wanted["state"], "x": np.zeros((2, 2, 1), np.float32)}}
        with pytest.raises(ProcessorError, match=r"State 'x' is \(2, 2, 1\)"):
            policy.get_action(broken)
        broken = {**wanted, "language": {TASK: ["only one"]}}
        with pytest.raises(ProcessorError, match="different batch sizes"):
            policy.get_action(broken)

        for instruction in ([], ["two", "texts"], [3]):
            broken = {**wanted, "language": {TASK: [instruction, instruction]}}
            with pytest.raises(ProcessorError, match="each sample has one text"):
                policy.get_action(broken)

    def test_dtype(self, backend):
        with pytest.raises(ProcessorError, match="bf16 or fp32"):
            GrootPolicy.load(DATA / "checkpoint", "libero_sim", backend, dtype="fp8")
