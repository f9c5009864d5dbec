"""What two ranks do in `test_zero.py`: a failure of ZeRO-3 as it was met, and the same run with the guard."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from tests.train import toy
from vla_backend import activate
from vla_train.train import setup
from vla_train.train.loop import Trainer
from vla_train.train.world import join

#: Shard also tensors as small as those of the toy model.
SHARDED = {"stage3_param_persistence_threshold": 0}


def outcome(work: Any) -> dict[str, str]:
    """What `work()` raised and how the backend explains it; empty if it went through."""
    try:
        work()
    except Exception as error:
        known = activate("cpu").translate_error(error)
        return {"raised": f"{type(error).__name__}: {error}", "what": known.what, "chinese": known.chinese}
    return {}


def trainer(folder: Path, **changes: Any) -> Trainer:
    config = toy.config(folder, parallel__strategy="zero3", data__batch_size=2, **changes)
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return Trainer(setup.set_up(config, toy.entry, backend, join(backend, config.parallel.dist_timeout)))


def two_dtypes(folder: Path, rank: int, guard: bool) -> dict[str, str]:
    """A5: a bfloat16 trunk and a float32 head under ZeRO-3; the guard stores all masters in float32."""

    def work() -> None:
        config = toy.config(folder, parallel__strategy="zero3", data__batch_size=2)
        config.model.half_weights = True
        backend = activate("cpu")
        backend.load_stack()
        backend.local_device(0)
        Trainer(setup.set_up(config, toy.entry, backend, join(backend, 60))).one_step(log=True)

    if guard:
        return outcome(work)
    with mock.patch.object(setup, "float32_masters", return_value=0):
        return outcome(work)


def evaluation(folder: Path, rank: int, guard: bool) -> dict[str, str]:
    """A8: a prediction between two training steps; the guard is `backend.evaluating`."""
    made = trainer(folder, parallel__deepspeed={"zero_optimization": SHARDED})
    made.one_step(log=True)
    batch = made.backend.to_device(toy.collate([toy.ToyDataset()[index] for index in range(2)]))
    with made.backend.evaluating(made.parts.model) if guard else torch.inference_mode():
        made.parts.strategy.deepspeed(batch)
    return outcome(lambda: made.one_step(log=True))


def saving(folder: Path, rank: int, guard: bool) -> dict[str, Any]:
    """A9: rank 0 gathers the whole state to save it while the other waits; the guard is `save_sharded`."""
    gathers = {"stage3_gather_16bit_weights_on_model_save": True, **SHARDED}
    made = trainer(folder, parallel__deepspeed={"zero_optimization": gathers})
    made.one_step(log=True)
    engine = made.parts.strategy.deepspeed
    if guard:
        return outcome(made.save) | {"shards": sorted(path.name for path in folder.rglob("*optim_states.pt"))}
    # In place of the job's 1800 s. Nothing can use the group afterwards, so this is the last job.
    for group in {dist.group.WORLD, engine.optimizer.dp_process_group}:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=4), group)
    return outcome(engine._zero3_consolidated_16bit_state_dict if rank == 0 else dist.barrier)
