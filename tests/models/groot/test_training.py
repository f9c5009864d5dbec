"""Training with the engine against the recorded run of the published trainer, and on a LeRobot set."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from vla_groot.checkpoint import load_model

from . import recorded
from .conftest import DATA, near, part


def test_weight_decay(backend, facts):
    model = load_model(DATA / "checkpoint", backend)
    names = [name for name, _ in model.named_parameters()]
    tied = {"backbone.model.lm_head.weight"}
    assert [name for name in names if name not in model.no_weight_decay] == [
        name for name in facts("keys")["weight_decay_params"] if name not in tied
    ]
    assert [name for name in names if name in model.no_weight_decay] == facts("keys")["no_weight_decay_params"]


@pytest.mark.parametrize("detached", [True, False], ids=["frozen networks detached", "whole model"])
def test_six_steps_of_the_published_trainer(backend, tensors, facts, detached):
    model, steps = recorded.six_steps(backend, detached=detached)
    facts = facts("train6")
    assert steps.groups == facts["param_groups"]
    for found, entry, loss in zip(steps.each, facts["history"], facts["exact_loss"], strict=True):
        assert found["learning_rate"] == pytest.approx(entry["learning_rate"], abs=1e-12)
        assert found["loss"] == pytest.approx(loss, abs=2e-5)
        assert found["grad_norm"] == pytest.approx(entry["grad_norm"], rel=1e-4)
    state = model.full_state_dict()
    start = load_file(DATA / "checkpoint" / "model.safetensors")
    assert {name for name in start if not torch.equal(state[name], start[name])} == set(facts["changed_params"])
    for name, value in part(tensors("train6"), "final.").items():
        near(state[name], value, 1e-4)
    for name, norm in facts["final_norm"].items():
        if name.endswith("attn1.to_k.bias"):  # Adam makes whole steps of a gradient that is nothing but rounding
            continue
        assert state[name].norm().item() == pytest.approx(norm, rel=1e-4), name
