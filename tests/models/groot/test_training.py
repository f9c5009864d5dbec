"""Training with the engine against the recorded run of the published trainer, and on a LeRobot set."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from vla_groot.checkpoint import load_model
from vla_train.config.schema import OptimizerConfig, SchedulerConfig
from vla_train.nn import ReplayDraws
from vla_train.train.optimizer import build_optimizer
from vla_train.train.schedule import build_schedule
from vla_train.train.setup import place_frozen
from vla_train.train.strategy import Replicated
from vla_train.train.world import World

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
    recorded, facts = tensors("train6"), facts("train6")
    architecture = load_model(DATA / "checkpoint", backend).config
    changes = {
        "tune_llm": False,
        "tune_visual": False,
        "tune_top_llm_layers": 1,
        "diffusion_model_cfg": {**architecture.diffusion_model_cfg, "dropout": 0.0},
        "vl_self_attention_cfg": {**(architecture.vl_self_attention_cfg or {}), "dropout": 0.0},
        "state_dropout_prob": 0.5,
    }
    model = load_model(DATA / "checkpoint", backend, changes=changes).train()
    if detached:
        assert set(place_frozen(model, backend)) == {"backbone.model.model.visual"}
        model.train()
    model.draws = ReplayDraws.from_tensors(recorded)
    arguments = facts["args"]
    optimizer = build_optimizer(
        model,
        {"base": arguments["lr"]},
        OptimizerConfig(betas=[0.9, 0.999], eps=1e-8, weight_decay=arguments["wd"]),
        backend,
    )
    found = [{"weight_decay": group["weight_decay"], "n": len(group["params"])} for group in optimizer.param_groups]
    assert found == facts["param_groups"]
    scheduler = build_schedule(optimizer, SchedulerConfig(name="cosine"), warmup_steps=3, max_steps=6)
    strategy = Replicated(
        model, optimizer, backend, World(0, 0, 1, backend.device), accumulation=1, clipping=1.0, dtype=torch.float32
    )
    batch = part(tensors("processor_batch"), "batch.")
    for step, entry in enumerate(facts["history"]):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(entry["learning_rate"], abs=1e-12)
        loss = strategy.forward(batch)["action_loss"]
        strategy.backward(loss, True)
        norm = strategy.step(want_norm=True)
        scheduler.step()
        assert loss.item() == pytest.approx(facts["exact_loss"][step], abs=2e-5), step
        assert norm.item() == pytest.approx(entry["grad_norm"], rel=1e-4), step
    state = model.full_state_dict()
    start = load_file(DATA / "checkpoint" / "model.safetensors")
    assert {name for name in start if not torch.equal(state[name], start[name])} == set(facts["changed_params"])
    for name, value in part(recorded, "final.").items():
        near(state[name], value, 1e-4)
    for name, norm in facts["final_norm"].items():
        if name.endswith("attn1.to_k.bias"):  # Adam makes whole steps of a gradient that is nothing but rounding
            continue
        assert state[name].norm().item() == pytest.approx(norm, rel=1e-4), name
