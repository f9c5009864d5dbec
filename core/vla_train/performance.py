"""Speed alone: `vla train --performance` runs some steps after a warm-up and says samples per second per device.

`python -m vla_train.performance CONFIG STEPS` is one process of it; the launcher starts one per device. Data loading,
collectives and the update are in the time; checkpoints, evaluation and logging are not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vla_backend import Backend, activate, choose
from vla_train import models
from vla_train.config import Config, load_config
from vla_train.launch.failure import guard
from vla_train.worker import translated

if TYPE_CHECKING:
    from vla_train.train.setup import Parts

WARM_UP: Final = 5
STEPS: Final = 20
FILE: Final = "performance.json"


@dataclass(frozen=True)
class Performance:
    """What was measured over `steps` optimizer steps after `warm_up` steps.

    Attributes:
        model, backend, strategy, precision, processes, batch_size, accumulation: what ran.
        step_s: seconds per optimizer step.
        data_s: of them, seconds in which rank 0 waited for data.
        samples_per_s_per_device: batch_size * accumulation / step_s.
        samples_per_s: of all devices together.
        memory_peak: bytes allocated at the highest moment, the largest of all devices.
        memory_total: bytes of one device.
        device, machine: where.
        versions: of the packages that decide.
    """

    model: str
    backend: str
    strategy: str
    precision: str
    processes: int
    batch_size: int
    accumulation: int
    warm_up: int
    steps: int
    step_s: float
    data_s: float
    samples_per_s_per_device: float
    samples_per_s: float
    memory_peak: int
    memory_total: int
    device: str
    machine: str
    versions: dict[str, Any]

    def lines(self) -> list[str]:
        """For people."""
        gib = 2**30
        devices = f"{self.processes} device{'s' * (self.processes > 1)}"
        return [
            f"{self.samples_per_s_per_device:.3f} samples/s per device, {self.samples_per_s:.3f} on {devices}",
            f"  step        {self.step_s:.4f} s, of which {self.data_s:.4f} s waiting for data "
            f"({self.steps} steps after {self.warm_up} of warm-up)",
            f"  run         {self.model}, {self.strategy}, {self.precision}, {self.batch_size} samples per device"
            + (f" x {self.accumulation}" if self.accumulation > 1 else ""),
            f"  memory      {self.memory_peak / gib:.2f} of {self.memory_total / gib:.2f} GiB at its highest",
            f"  machine     {self.backend}: {self.device}; {self.machine}",
        ]


def without_checkpoints(config: Config, steps: int) -> None:
    """Make of a training configuration one for measuring `steps` steps, in a run folder of its own."""
    config.run.id += "_performance"
    config.run.loggers = []
    train = config.train
    train.save_interval = train.eval_interval = 0
    train.max_steps = max(train.max_steps, WARM_UP + steps)
    train.resume = "auto"


def measure(
    config: Config, entry: models.ModelEntry, backend: Backend, steps: int, warm_up: int = WARM_UP
) -> Performance:
    """Train for `warm_up` + `steps` optimizer steps as the rank that the environment names; the `Performance`.

    Raises:
        BackendError: what cannot work.
    """
    backend.load_stack()
    from vla_train.train.deepspeed_config import STAGES
    from vla_train.train.loop import Trainer
    from vla_train.train.run import local_rank
    from vla_train.train.setup import set_up
    from vla_train.train.world import join, leave

    backend.local_device(local_rank())
    patches = backend.apply_patches()
    world = join(backend, config.parallel.dist_timeout, alone_too=config.parallel.strategy in STAGES)
    parts = set_up(config, entry, backend, world, patches=patches)
    trainer = Trainer(parts)
    try:
        with trainer.heartbeat:
            for _ in range(warm_up):
                trainer.one_step(log=False)
            trainer.meter.check()
            backend.synchronize()
            trainer.meter.record()
            backend.memory_stats(reset_peak=True)
            started = time.perf_counter()
            for _ in range(steps):
                trainer.one_step(log=False)
            backend.synchronize()
            # The slowest rank's time is the job's.
            elapsed = max(_of_all_ranks(parts, round((time.perf_counter() - started) * 1e6))) / 1e6
            trainer.meter.check()
            record = trainer.meter.record()
            memory = backend.memory_stats()
            peak = max(_of_all_ranks(parts, memory.peak))
    finally:
        parts.loader.close()
        leave()
    return _made(parts, steps, warm_up, elapsed / steps, record["data_time"], peak, memory.total)


def _of_all_ranks(parts: Parts, value: int) -> list[int]:
    import torch

    world = parts.world
    mine = torch.zeros(world.world_size, dtype=torch.int64)
    mine[world.rank] = value
    return [int(entry) for entry in world.sum(mine).tolist()]


def _made(parts: Parts, steps: int, warm_up: int, step_s: float, data_s: float, peak: int, total: int) -> Performance:
    config, world = parts.config, parts.world
    samples = config.data.batch_size * config.train.gradient_accumulation_steps
    return Performance(
        model=config.model.name,
        backend=parts.backend.name,
        strategy=config.parallel.strategy,
        precision=config.parallel.mixed_precision,
        processes=world.world_size,
        batch_size=config.data.batch_size,
        accumulation=config.train.gradient_accumulation_steps,
        warm_up=warm_up,
        steps=steps,
        step_s=step_s,
        data_s=data_s,
        samples_per_s_per_device=samples / step_s,
        samples_per_s=samples * world.world_size / step_s,
        memory_peak=peak,
        memory_total=total,
        device=parts.backend.probe().reason,
        machine=f"{platform.node()}, {platform.machine()}, Python {platform.python_version()}",
        versions=dict(parts.decisions["versions"]),
    )


def main(argv: list[str] | None = None) -> int:
    """One rank; rank 0 prints the result and writes it beside the run's configuration."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.performance", description=__doc__)
    parser.add_argument("config", help="complete configuration")
    parser.add_argument("steps", type=int, nargs="?", default=STEPS, help="steps to measure")
    arguments = parser.parse_args(argv)
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    try:
        found = measure(config, models.find(config.model.name), backend, arguments.steps)
        if os.environ.get("RANK", "0") == "0":
            print("\n".join(found.lines()), flush=True)
            file = Path(config.run.root) / config.run.id / FILE
            file.write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
            print(f"  json        {file}", flush=True)
    except Exception as error:
        raise translated(error, backend) from error
    return 0


if __name__ == "__main__":
    sys.exit(guard(main))
