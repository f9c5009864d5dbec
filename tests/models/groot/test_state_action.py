"""Normalisation and relative actions against recordings of the published implementation."""

from __future__ import annotations

import numpy as np
import pytest

from vla_groot.errors import EmbodimentError, ProcessorError
from vla_groot.modality import ActionFormat, ModalityConfig
from vla_groot.pose import read_pose, relative_pose, write_pose
from vla_groot.state_action import StateActionProcessor

from .conftest import part

CASES = ("minmax_rel", "pct_rel", "minmax_abs", "noclip_rel")


@pytest.fixture
def recorded(tensors):
    return {key: value.numpy() for key, value in tensors("state_action").items()}


def embodiment(facts):
    actions = [dict(entry) for entry in facts["action_cfg"]]
    return {
        "state": ModalityConfig.parse({"delta_indices": [0], **facts["state_cfg"]}),
        "action": ModalityConfig(
            range(facts["horizon"]),
            [entry.pop("key") for entry in actions],
            mean_std_embedding_keys=facts["action_mean_std_keys"],
            action_configs=actions,
        ),
    }


def processor(facts, case: str) -> StateActionProcessor:
    return StateActionProcessor({"emb": embodiment(facts)}, facts["statistics"], **facts["cases"][case]["kwargs"])


def check(found, recorded, facts, case, kind):
    wanted = part(recorded, f"{case}.{kind}.")
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=0, atol=1e-6, err_msg=f"{case}.{kind}.{key}")
        assert found[key].dtype == facts["cases"][case]["dtypes"][f"{case}.{kind}.{key}"], key


@pytest.mark.parametrize("case", CASES)
def test_recorded_case(recorded, facts, case):
    facts = facts("state_action")
    made, state, action = processor(facts, case), part(recorded, "in.state."), part(recorded, "in.action.")
    normal_state, normal = made.apply_state(state, "emb"), made.apply_action(action, "emb", state)
    check(normal_state, recorded, facts, case, "state")
    check(normal, recorded, facts, case, "action")
    check(made.unapply_action(normal, "emb", state), recorded, facts, case, "unapplied")
    batched, states = part(recorded, "batched.in.action."), part(recorded, "batched.in.state.")
    check(made.unapply_action(batched, "emb", states), recorded, facts, case, "batched")
    assert sum(made.widths("emb", "action").values()) == facts["cases"][case]["action_dim"]
    assert sum(made.widths("emb", "state").values()) == facts["cases"][case]["state_dim"]
    if f"{case}.unapplied_state.eef" in recorded:
        check(made.unapply_state(normal_state, "emb"), recorded, facts, case, "unapplied_state")
    else:
        with pytest.raises(ProcessorError, match="sine and cosine"):
            made.unapply_state(normal_state, "emb")


@pytest.mark.parametrize("form", ActionFormat)
def test_poses_of_every_format_come_back(form):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(5, 6))
    reference, pose = read_pose(vectors[:1], ActionFormat.XYZ_ROTVEC), read_pose(vectors, ActionFormat.XYZ_ROTVEC)
    np.testing.assert_allclose(read_pose(write_pose(pose, form), form), pose, atol=1e-12)
    np.testing.assert_allclose(reference @ relative_pose(reference, pose), pose, atol=1e-12)
    np.testing.assert_allclose(relative_pose(pose, pose), np.broadcast_to(np.eye(4), (5, 4, 4)), atol=1e-12)


def test_errors_name_the_remedy(recorded, facts):
    facts = facts("state_action")
    made = processor(facts, "minmax_rel")
    action = part(recorded, "in.action.")
    with pytest.raises(ProcessorError, match="needs the state part 'eef'"):
        made.apply_action(action, "emb")
    with pytest.raises(EmbodimentError, match="no modality configs of 'other'"):
        made.apply_action(action, "other")
    with pytest.raises(ProcessorError, match="State part 'eef' is missing"):
        made.apply_state({}, "emb")
    made.statistics = {}
    with pytest.raises(EmbodimentError, match="no statistics of state 'eef'"):
        made.apply_state(part(recorded, "in.state."), "emb")


def test_relative_parts_may_be_normalised_with_their_own_mean_and_deviation():
    config = ModalityConfig(
        range(2), ["arm"], mean_std_embedding_keys=["arm"], action_configs=[{"rep": "RELATIVE", "type": "NON_EEF"}]
    )
    other = {"min": [-9.0], "max": [9.0], "mean": [7.0], "std": [9.0]}
    own = {"min": [[-9.0]] * 2, "max": [[9.0]] * 2, "mean": [[1.0], [2.0]], "std": [[2.0], [0.0]]}
    made = StateActionProcessor(
        {"emb": {"state": ModalityConfig([0], ["arm"]), "action": config}},
        {"emb": {"action": {"arm": other}, "relative_action": {"arm": own}}},
        use_relative_action=True,
        clip_outliers=False,
    )
    state, action = {"arm": np.asarray([[10.0]])}, {"arm": np.asarray([[15.0], [16.0]])}
    found = made.apply_action(action, "emb", state)
    np.testing.assert_allclose(found["arm"], [[2.0], [6.0]])  # (5 - 1) / 2; without a deviation as it is
    np.testing.assert_allclose(made.unapply_action(found, "emb", state)["arm"], action["arm"])
