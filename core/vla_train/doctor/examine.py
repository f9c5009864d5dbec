"""All checks, in the order of what rests on what, within one limit of time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from vla_backend import Backend
from vla_backend.health import GROUP, Check
from vla_train.config import Config
from vla_train.doctor import machine, packages, readings
from vla_train.doctor.children import Child, launch, start
from vla_train.launch.plan import plan
from vla_train.launch.preflight import missing_files

#: Seconds for everything.
LIMIT: Final = 55.0
#: Share of the device's free memory that an estimate may take; the rest is for the runtime and fragments.
HEADROOM: Final = 0.95


@dataclass
class Job:
    """What is to be trained, and where.

    Attributes:
        backend: not necessarily able to run here.
        config: its configuration, `None` to look at the machine alone.
        config_arguments: command-line arguments that load it in another process.
        processes: ranks wanted.
        env: of the caller.
        readings: facts about the machine; read here unless given.
        limit_s: seconds for everything.
    """

    backend: Backend
    config: Config | None
    config_arguments: list[str]
    processes: int
    env: dict[str, str]
    readings: readings.Readings | None = None
    limit_s: float = LIMIT
    trained: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.limit_s
        if self.readings is None:
            root = Path(self.config.run.root if self.config is not None else ".")
            self.readings = readings.read(self.env, root)
        config = self.config if self.config is not None else Config()
        self.worker_env = plan("", [], config, self.backend, self.env, self.processes).environment(self.env)


def examine(job: Job) -> Iterator[Check]:
    """Every check, as soon as it is known."""
    assert job.readings is not None
    zero = job.config is not None and job.config.parallel.strategy != "ddp"
    # At once, beside the checks that need no torch: the first tells whether the others that need it can be asked at
    # all, the second takes longest.
    first = start("stack", job.worker_env)
    estimate = _estimate(job) if job.config is not None else None
    try:
        yield packages.python()
        yield from _guarded("packages", packages.packages(zero))
        yield from plugin_checks(job.backend.name, job.worker_env)
        yield machine.devices(job.backend, job.worker_env, job.processes)
        yield from _guarded("settings", machine.configuration(job.backend, job.config, job.env))
        if job.config is not None:
            yield from _guarded("files", _files(job.config))
        yield machine.ports(job.readings)
        yield from machine.compiler(job.readings, job.config)
        yield machine.shared_memory(job.readings, job.config, job.backend)
        first.wait(job.deadline)
        runtime = first.check("runtime")
        yield runtime
        yield from _with_torch(job, first.answer or {}, estimate, runtime.outcome == "ok")
    finally:
        first.kill()
        if estimate is not None:
            estimate.kill()


def plugin_checks(backend: str, env: Mapping[str, str]) -> Iterator[Check]:
    """What the plugin itself checks, if it does (entry-point group `vla.doctor`)."""
    for entry in metadata.entry_points(group=GROUP, name=backend):
        try:
            found: Iterable[Check] = entry.load()(env)
        except Exception as error:
            yield Check("plugin", "failed", f"{entry.value}: {type(error).__name__}: {error}", "repair the plugin")
            continue
        yield from _guarded("plugin", iter(found))


def _guarded(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """A check that breaks is a finding, too; the others go on."""
    try:
        yield from checks
    except Exception as error:
        yield Check(name, "failed", f"the check itself failed: {type(error).__name__}: {error}", "please report it")


def _files(config: Config) -> Iterator[Check]:
    problems = missing_files(config)
    for problem in problems:
        yield Check("files", "failed", f"{problem.key}: {problem.message}", problem.remedy)
    if not problems:
        yield Check("files", "ok", "data, weights and checkpoints that the configuration names are there")


def _with_torch(job: Job, stack: dict[str, Any], estimate: Child | None, able: bool) -> Iterator[Check]:
    if not able:
        for name in ("frames", "step", "collective", *(["memory"] if estimate is not None else [])):
            yield Check(name, "skipped", "needs torch on the device, see above")
        yield machine.disk(_readings(job), job.config, 0)
        return
    children: list[Child] = []
    try:
        frames = _add(children, start("frames", job.worker_env, _frame_arguments(job)))
        precision = job.config.parallel.mixed_precision if job.config is not None else "fp32"
        step = _add(children, start("step", job.worker_env, [precision]))
        probe = job.backend.probe(job.worker_env)
        ranks = []
        if probe.shared or probe.device_count > 1:
            ranks = [_add(children, child) for child in _two_ranks(job)]
        for child in children:
            child.wait(job.deadline)
    finally:
        for child in children:
            child.kill()
    yield frames.check("frames")
    yield step.check("step")
    if ranks:
        found = [child.check("collective") for child in ranks]
        yield next((check for check in found if check.outcome == "failed"), found[0])
    else:
        yield Check("collective", "skipped", f"needs two devices, {probe.device_count} is visible")
    if estimate is not None:
        estimate.wait(job.deadline)
        yield _memory(job, estimate, stack)
    yield machine.disk(_readings(job), job.config, job.trained)


def _readings(job: Job) -> readings.Readings:
    assert job.readings is not None
    return job.readings


def _add(children: list[Child], child: Child) -> Child:
    children.append(child)
    return child


def _frame_arguments(job: Job) -> list[str]:
    """The decoder, and the first video of the first dataset."""
    if job.config is None:
        return []
    data = job.config.data
    for entry in data.datasets:
        found = next((Path(data.root) / entry.path).expanduser().glob("videos/**/*.mp4"), None)
        if found is not None:
            return [data.decoder, str(found)]
    return [data.decoder]


def _two_ranks(job: Job) -> list[Child]:
    port = str(_free_port())
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        start("collective", {**job.worker_env, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]


def _free_port() -> int:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _estimate(job: Job) -> Child:
    command = [sys.executable, "-m", "vla_train.cli", "estimate", "--marked", *job.config_arguments]
    return launch("estimate", command, job.worker_env)


def _memory(job: Job, child: Child, stack: dict[str, Any]) -> Check:
    """Free memory of the device against the estimate."""
    if child.answer is None:
        remedy = f"vla estimate {' '.join(job.config_arguments)}"
        return Check("memory", "warning", f"no estimate of this configuration: {child.problem}", remedy)
    wanted, free, total = child.answer["peak"], stack["free"], stack["total"]
    job.trained = int(child.answer["trained"])
    shared = job.processes if job.backend.probe(job.worker_env).shared else 1
    text = f"{_gib(wanted * shared)} estimated, {_gib(free)} of {_gib(total)} free"
    if wanted * shared <= HEADROOM * free:
        return Check("memory", "ok", text)
    remedy = "smaller data.batch_size with train.gradient_accumulation_steps, --zero 3, more processes, or "
    remedy += "model.gradient_checkpointing; `vla estimate` shows the parts"
    return Check("memory", "failed", text, remedy)


def _gib(size: float) -> str:
    return f"{size / machine.GIB:.1f} GiB"
