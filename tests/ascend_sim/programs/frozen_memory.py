"""A training step with a large encoder on one NPU of little memory, placed in three ways; prints the peak of each.

trained: moved to the NPU with the rest, with gradients and optimizer state, as a port began; device: frozen, on the
NPU; host: frozen, in host memory.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from tests.train import toy
from vla_backend import activate
from vla_train.train import setup
from vla_train.train.loop import Trainer
from vla_train.train.world import join


class Model(toy.ToyModel):
    """The toy model behind an encoder of 15 million parameters (60 MB)."""

    def __init__(self, config: toy.ToyConfig, placed: str) -> None:
        super().__init__(config)
        self.encoder = nn.Sequential(nn.Linear(toy.WIDTH, 1 << 20), nn.Linear(1 << 20, 8))
        self.frozen_on_host = ("encoder",) if placed == "host" else ()

    def forward(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        x = batch["x"]
        features = self.encoder(x.to(next(self.encoder.parameters()).device)).to(x.device)
        error = (self.head(self.trunk(features)) - batch["y"]) ** 2 * batch["mask"]
        return {"action_loss": error.sum() / batch["mask"].sum()}


def build(config: Any, backend: Any) -> Model:
    return Model(config.model, config.run.id)


def step(placed: str) -> str:
    config = toy.config(Path.cwd(), data__batch_size=1)
    config.backend = "ascend"
    config.run.id = placed
    entry = replace(toy.entry, build="__main__:build")
    guard = setup.place_frozen if placed != "trained" else lambda model, backend: {}
    try:
        with mock.patch.object(setup, "place_frozen", guard):
            trainer = Trainer(setup.set_up(config, entry, backend, world))
        backend.memory_stats(reset_peak=True)
        trainer.one_step(log=True)
    except RuntimeError as error:  # torch_npu has a class of its own for it since 2.8
        known = backend.translate_error(error)
        return f"out of memory | {known.what} | {known.chinese}"
    return f"{backend.memory_stats().peak / 2**20:.0f} MB"


backend = activate("ascend")
backend.load_stack()
backend.local_device(0)
world = join(backend, 120)
for placed in sys.argv[1:]:
    print(f"{placed}: {step(placed)}", flush=True)
    gc.collect()
    torch.npu.empty_cache()
