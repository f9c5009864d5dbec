"""Memory of training steps on NPUs: `measured MODEL:STRATEGY:PRECISION:PROCESSES ...`, or `estimated` for the same.

Writes a JSON file per job and rank.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

from tests.doctor import small, small_groot
from vla_backend import Backend, activate
from vla_train.train.run import local_rank

#: DistributedDataParallel arranges its buckets anew in the second step.
WARM_UP, STEPS = 2, 3
MODELS = {"dit4dit": small, "groot": small_groot}


def measured(model: str, strategy: str, precision: str, backend: Backend) -> dict[str, int]:
    from vla_train.train.loop import Trainer
    from vla_train.train.setup import set_up
    from vla_train.train.world import join

    world = join(backend, 120, alone_too=True)
    gc.collect()  # models refer to themselves, and the job before this one is no part of its peak
    before = backend.memory_stats(reset_peak=True).allocated
    assert before < 1 << 20, before
    job = Path.cwd() / model / strategy / precision
    config = MODELS[model].config(job, strategy, precision, world.world_size, **_base(model))
    config.backend = "ascend"
    parts = set_up(config, MODELS[model].entry, backend, world)
    trainer = Trainer(parts)
    for _ in range(WARM_UP):
        trainer.one_step(log=False)
    backend.synchronize()
    backend.memory_stats(reset_peak=True)
    for _ in range(STEPS):
        trainer.one_step(log=False)
    backend.synchronize()
    parts.loader.close()
    return {"peak": backend.memory_stats().peak}


def estimated(model: str, strategy: str, precision: str, processes: int) -> dict[str, int]:
    from vla_train.estimate.simulate import estimate

    config = MODELS[model].config(Path.cwd(), strategy, precision, processes, **_base(model))
    found = estimate(config, MODELS[model].entry, activate("ascend", check_available=False))
    print("\n".join(found.lines()))
    return {"peak": found.peak}


def _base(model: str) -> dict[str, Path]:
    return {"base": Path.cwd()} if model == "groot" else {}


if __name__ == "__main__":
    kind, *todo = sys.argv[1:]
    if kind == "measured":
        backend = activate("ascend")
        backend.load_stack()
        backend.local_device(local_rank())
    elif any(name.startswith("groot") for name in todo):
        cpu = activate("cpu")
        cpu.load_stack()
        cpu.local_device(0)
        small_groot.write_base(Path.cwd(), cpu)
    for name in todo:
        model, strategy, precision, processes = name.split(":")
        if kind == "measured":
            found = measured(model, strategy, precision, backend)
        else:
            found = estimated(model, strategy, precision, int(processes))
        file = f"{kind}-{name.replace(':', '-')}-{local_rank()}.json"
        Path.cwd().joinpath(file).write_text(json.dumps(found))
