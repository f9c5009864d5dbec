"""The recorded run of the published trainer, repeated with the engine on any backend."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import load_file

from vla_backend import Backend
from vla_groot.checkpoint import load_model
from vla_groot.model import Groot
from vla_groot.options import DEFAULTS
from vla_train.config.schema import OptimizerConfig, SchedulerConfig
from vla_train.nn import ReplayDraws
from vla_train.train.optimizer import build_optimizer
from vla_train.train.schedule import build_schedule
from vla_train.train.setup import place_frozen
from vla_train.train.strategy import Replicated
from vla_train.train.world import World

from .conftest import DATA, part


@dataclass
class Steps:
    """What was found: of the optimizer its groups, of every step learning_rate, loss, grad_norm."""

    groups: list[dict[str, Any]]
    each: list[dict[str, float]] = field(default_factory=list)


def six_steps(backend: Backend, *, detached: bool) -> tuple[Groot, Steps]:
    """Train the recorded checkpoint on the recorded batch with the recorded draws; the current folder is `DATA`.

    Args:
        backend: device-ready.
        detached: frozen networks are taken out of the model, as the engine does.
    """
    facts = json.loads((DATA / "train6.json").read_text())
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
    model.to(backend.device)
    model.draws = ReplayDraws.from_tensors(load_file(DATA / "train6.safetensors"))
    arguments = facts["args"]
    optimizer = build_optimizer(
        model,
        {"base": arguments["lr"]},
        OptimizerConfig(**{**DEFAULTS["train"]["optimizer"], "weight_decay": arguments["wd"]}),
        backend,
    )
    scheduler = build_schedule(optimizer, SchedulerConfig(name="cosine"), warmup_steps=3, max_steps=6)
    strategy = Replicated(
        model, optimizer, backend, World(0, 0, 1, backend.device), accumulation=1, clipping=1.0, dtype=torch.float32
    )
    batch = backend.to_device(part(load_file(DATA / "processor_batch.safetensors"), "batch."))
    groups = [{"weight_decay": group["weight_decay"], "n": len(group["params"])} for group in optimizer.param_groups]
    steps = Steps(groups)
    for _ in facts["history"]:
        rate = optimizer.param_groups[0]["lr"]
        loss = strategy.forward(batch)["action_loss"]
        strategy.backward(loss, True)
        norm = strategy.step(want_norm=True)
        scheduler.step()
        steps.each.append({"learning_rate": rate, "loss": loss.item(), "grad_norm": norm.item()})
    return model, steps
