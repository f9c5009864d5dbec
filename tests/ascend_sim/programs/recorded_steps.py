"""Three recorded training steps of upstream's DiT4DiT on the Ascend backend, for every strategy on the command line.

Writes a JSON file per strategy and rank: losses, gradient norms, actions after the steps, a step after the evaluation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from tests.train import golden
from vla_backend import activate
from vla_train.train.loop import Trainer
from vla_train.train.run import local_rank
from vla_train.train.setup import set_up
from vla_train.train.world import join

KEPT = ("action_loss", "future_video_loss", "total_loss", "grad_norm")


class OnDevice(golden.SharedDraws):
    """The recorded draws where the model wants them."""

    device: torch.device

    def _next(self, shape: tuple[int, ...]) -> torch.Tensor:
        return super()._next(shape).to(self.device)


def replay(strategy: str, precision: str) -> dict[str, object]:
    backend = activate("ascend")
    backend.load_stack()
    backend.local_device(local_rank())
    world = join(backend, 120, alone_too=True)
    settings = golden.config(Path.cwd() / strategy / precision, strategy, 2 // world.world_size)
    settings.backend, settings.parallel.mixed_precision = "ascend", precision
    parts = set_up(settings, golden.entry, backend, world)
    parts.model.draws = OnDevice(golden.Recorded().tensors, world.rank, world.world_size)
    parts.model.draws.device = backend.device
    trainer, keep = Trainer(parts), golden.Keep()
    trainer.loggers.append(keep)
    for _ in range(golden.STEPS):
        trainer.one_step(log=True)
    checkpoint = trainer.save()
    actions = golden.predict(parts)
    trainer.one_step(log=True)
    return {
        "strategy": strategy,
        "precision": precision,
        "rank": world.rank,
        "device": str(next(parts.model.parameters()).device),
        "steps": [{key: float(record[key]) for key in KEPT} for record in keep.records],
        "actions": actions,
        "checkpoint": str(checkpoint),
    }


for argument in sys.argv[1:]:
    strategy, _, precision = argument.partition(":")
    found = replay(strategy, precision or "fp32")
    name = f"{strategy}-{found['precision']}-{found['rank']}.json"
    (Path.cwd() / name).write_text(json.dumps(found))
