"""What training steps need, as torch's own record of its allocator on the CPU has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from vla_backend import Backend
from vla_train.config.schema import Config
from vla_train.estimate.live import LiveMemory
from vla_train.models import ModelEntry
from vla_train.train.loop import Trainer
from vla_train.train.setup import set_up
from vla_train.train.world import join


def peak(
    config: Config,
    entry: ModelEntry,
    backend: Backend,
    kept: Callable[[Any], Iterable[torch.Tensor]] = lambda model: (),
) -> int:
    """Bytes at the highest moment of the second step: what exists before it, and the allocator's record of the step.

    Args:
        kept: tensors of the model that stay between steps beside weights and buffers.
    """
    parts = set_up(config, entry, backend, join(backend, 60))
    trainer = Trainer(parts)
    trainer.one_step(log=False)
    model: Any = parts.model
    frozen = [t for network in model.frozen().values() for t in (*network.parameters(), *network.buffers())]
    state = [t for values in parts.optimizer.state.values() for t in values.values()]
    there = LiveMemory().note([*model.parameters(), *model.buffers(), *frozen, *state, *kept(model)])
    trainer.meter.record()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        trainer.one_step(log=False)
    parts.loader.close()
    events = recorded.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    assert len(changes) > 1000
    now = highest = 0
    for _, change in changes:
        now += change
        highest = max(highest, now)
    return there + highest
