"""What will be started: commands and environment, decided before anything runs."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from vla_backend import Backend
from vla_backend.discovery import ENV as BACKEND_ENV
from vla_train.config import Config, plain

WORKER: Final = "vla_train.worker"
PERFORMANCE: Final = "vla_train.performance"
EVALUATION: Final = "vla_train.evaluate"
CLOSED_LOOP: Final = "vla_train.closed_loop.worker"
SERVER: Final = "vla_train.serve.worker"
EXPORT: Final = "vla_train.checkpoint.export"
_ACCELERATE_PRECISION: Final = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
_GROUP_VARIABLES: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Plan:
    """One launch.

    Attributes:
        module: what every rank runs, `python -m module arguments`.
        arguments: its arguments.
        processes: number of ranks; one is started directly, several through accelerate's launcher.
        mixed_precision: as in the configuration.
        added: variables that the launch adds to the environment.
        removed: variables of the caller that would contradict the plan.
        engine: those of `added` that the launcher itself wants, each with the reason; the others are the backend's.
    """

    module: str
    arguments: list[str]
    processes: int
    mixed_precision: str = "fp32"
    added: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    engine: dict[str, str] = field(default_factory=dict)

    def command(self, folder: Path) -> list[str]:
        """The command to start; `folder` takes accelerate's configuration."""
        if self.processes == 1:
            return [sys.executable, "-m", self.module, *self.arguments]
        config = folder / "accelerate.yaml"
        config.write_text(yaml.safe_dump(self.accelerate_config()))
        return [sys.executable, "-m", "vla_train.launch.agent", str(config), self.module, *self.arguments]

    def accelerate_config(self) -> dict[str, object]:
        """Complete, so that no personal default of accelerate's user-wide file takes part.

        MULTI_GPU is accelerate's word for "one process per device by torch's launcher"; it is the path without mpirun,
        for processors as well. DeepSpeed is set up by the worker.
        """
        return {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "MULTI_GPU",
            "mixed_precision": _ACCELERATE_PRECISION[self.mixed_precision],
            "num_machines": 1,
            "num_processes": self.processes,
            "machine_rank": 0,
            "gpu_ids": "all",
            "use_cpu": False,
            "debug": False,
            "same_network": True,
            "rdzv_backend": "static",
            "main_training_function": "main",
        }

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """`env` as the ranks get it."""
        return {**{name: value for name, value in env.items() if name not in self.removed}, **self.added}


def plan(
    module: str, arguments: list[str], config: Config, backend: Backend, env: Mapping[str, str], processes: int
) -> Plan:
    """Decide what to start; `env` is the caller's environment."""
    # Left over from another launcher, the first would make a rank of nothing out of a single process; accelerate's own
    # variables would override what the configuration says.
    removed = tuple(sorted(name for name in env if name in _GROUP_VARIABLES or name.startswith("ACCELERATE_")))
    kept = {name: value for name, value in env.items() if name not in removed}
    added = dict(backend.env_defaults(plain(config), kept))
    engine = {}
    if kept.get(BACKEND_ENV) != backend.name:
        added[BACKEND_ENV] = backend.name
        engine[BACKEND_ENV] = "the choice is made once, for all processes; the configuration keeps what the user wrote"
    for name, (value, why) in _engine_defaults(config, processes).items():
        if name not in kept and name not in added:
            added[name] = value
            engine[name] = why
    return Plan(module, arguments, processes, config.parallel.mixed_precision, added, removed, engine)


def _engine_defaults(config: Config, processes: int) -> dict[str, tuple[str, str]]:
    """Value and reason by variable."""
    made = {}
    if processes > 1:
        threads = max(1, available_cpus() // processes)
        made["OMP_NUM_THREADS"] = str(threads), "every rank would otherwise start one thread per processor"
    if config.parallel.strategy != "ddp":
        minutes = math.ceil(config.parallel.dist_timeout / 60)
        made["DEEPSPEED_TIMEOUT"] = str(minutes), "parallel.dist_timeout, in minutes"
    return made


def available_cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
