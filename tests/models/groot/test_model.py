"""The whole model against recordings of the published implementation."""

from __future__ import annotations

import pytest
import torch

from vla_groot.checkpoint import load_model
from vla_groot.errors import BatchError
from vla_train.nn import ReplayDraws

from .conftest import DATA, near, part
from .test_action_head import check_gradients


@pytest.fixture
def model(backend):
    return load_model(DATA / "checkpoint", backend)


def inputs(tensors, name):
    recorded = tensors(name)
    recorded["in.pixel_values"] = tensors("processor_batch")["batch.pixel_values"]
    return recorded, part(recorded, "in.")


def test_loss_and_gradients(model, tensors, facts):
    recorded, batch = inputs(tensors, "full_loss")
    model.draws = ReplayDraws.from_tensors(recorded)
    result = model.compute(batch)
    near(result.loss, recorded["out.loss"][0], 1e-6)
    near(result.action_loss, recorded["out.action_loss"], 3e-5)
    near(result.hidden, recorded["out.backbone_features"])
    near(result.state, recorded["out.state_features"])
    result.loss.backward()
    check_gradients(model, facts("full_loss")["grad_norm"])


def test_engine_interface(model, tensors):
    recorded, batch = inputs(tensors, "full_loss")
    model.draws = ReplayDraws.from_tensors(recorded)
    losses = model({**batch, "sample_ids": ["a", "b"]})
    near(losses["action_loss"], recorded["out.loss"][0], 1e-6)
    recorded, _ = inputs(tensors, "full_action")
    model.draws = ReplayDraws.from_tensors(recorded)
    found = model.predict_action(batch)
    near(found, recorded["out.action_pred"])
    assert found.dtype == torch.float32


def test_actions(model, tensors):
    recorded, batch = inputs(tensors, "full_action")
    model.draws = ReplayDraws.from_tensors(recorded)
    near(model.get_action(batch), recorded["out.action_pred"])


def test_actions_in_bfloat16(backend, tensors):
    recorded, batch = inputs(tensors, "full_action")
    model = load_model(DATA / "checkpoint", backend, dtype=torch.bfloat16)
    model.draws = ReplayDraws.from_tensors(recorded)
    found = model.get_action(batch)
    assert found.dtype == torch.bfloat16
    assert (found.float() - recorded["out.action_pred"]).abs().mean() < 0.05


def test_generator_repeats(model, tensors):
    _, batch = inputs(tensors, "full_action")
    first, second = (model.get_action(batch, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)


def test_previous_action_needs_options(model, tensors):
    _, batch = inputs(tensors, "full_loss")
    with pytest.raises(BatchError, match="rtc_overlap_steps"):
        model.get_action(batch)


def test_trainable_weights_of_every_flag_combination(backend, facts):
    for flags, wanted in facts("keys")["trainable_head"].items():
        on = {key: bool(int(value)) for key, value in (flag.split("=") for flag in flags.split(","))}
        changes = {
            "tune_projector": on["projector"],
            "tune_diffusion_model": on["diffusion"],
            "tune_vlln": on["vlln"],
            "tune_llm": False,
            "tune_visual": False,
        }
        model = load_model(DATA / "checkpoint", backend, changes=changes)
        found = [name for name, p in model.named_parameters() if p.requires_grad]
        assert found == [f"action_head.{name}" for name in wanted], flags


def test_what_is_not_trained_drops_nothing(backend):
    model = load_model(DATA / "checkpoint", backend, changes={"tune_diffusion_model": False}).train()
    assert not any(m.training for m in model.action_head.model.modules())
    assert model.action_head.vl_self_attention.training
    assert model.action_head.state_encoder.training


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"tune_llm": False, "tune_visual": False}, ["backbone"]),
        ({"tune_llm": False}, ["backbone.model.model.language_model"]),
        ({"tune_visual": False}, ["backbone.model.model.visual"]),
        ({"tune_llm": False, "tune_visual": False, "tune_top_llm_layers": 1}, ["backbone.model.model.visual"]),
    ],
)
def test_detached_networks_keep_working(backend, tensors, changes, names):
    recorded, batch = inputs(tensors, "full_loss")
    model = load_model(DATA / "checkpoint", backend, changes=changes)
    complete = set(model.state_dict())
    assert list(model.detach_frozen()) == names
    model.detach_frozen()
    left = set(model.state_dict())
    assert left == {key for key in complete if not key.startswith(tuple(names))}
    assert set(model.full_state_dict()) == complete
    model.draws = ReplayDraws.from_tensors(recorded)
    near(model(batch)["action_loss"], recorded["out.loss"][0], 1e-6)


def test_batch_without_state(model, tensors):
    _, batch = inputs(tensors, "full_action")
    del batch["state"]
    with pytest.raises(BatchError, match="lacks state"):
        model.get_action(batch)
