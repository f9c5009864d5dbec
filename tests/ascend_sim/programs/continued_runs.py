"""Runs of the toy model, one after another: `backend:run:steps` starts or continues a run up to that many steps."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.train import toy
from vla_backend import activate
from vla_train.train.run import run


class OnDevice(toy.ToyModel):
    """The toy draws its noise on the host."""

    def _noise(self, batch):
        return super()._noise(batch).to(batch["x"].device)


def build(config, backend):
    return OnDevice(config.model)


entry = replace(toy.entry, build=f"{__name__}:build")
for argument in sys.argv[1:]:
    backend, name, steps = argument.split(":")
    config = toy.config(Path.cwd() / name, train__max_steps=int(steps), train__save_interval=3)
    config.backend = backend
    outcome = run(config, entry, activate(backend))
    print("RUN", argument, outcome.step, flush=True)
