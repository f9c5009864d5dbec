"""Checks of the machine, from readings alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vla_backend import Backend
from vla_backend.health import Check, Outcome
from vla_backend.settings import setting
from vla_train.config import Config, plain
from vla_train.doctor.readings import Readings

GIB: Final = 2**30
#: Without a configuration: what a container gives by default (64 MB) is too little for any data worker.
SHARED_MEMORY_WANTED: Final = 1 * GIB
DISK_WANTED: Final = 20 * GIB
#: float32 weights and the two moments of the optimizer.
CHECKPOINT_BYTES_PER_VALUE: Final = 12
_CAMERAS: Final = 3


def compiler(readings: Readings, config: Config | None) -> Iterator[Check]:
    """A C++ compiler, which DeepSpeed's own operators and torch.compile need."""
    why = compiler_needed(config)
    bad: Outcome = "failed" if why else "warning"
    need = f"{why} needs one" if why else "this configuration does without; DeepSpeed's own operators need one"
    if not readings.compiler:
        yield Check("compiler", bad, f"no C++ compiler on PATH; {need}", "install g++ (apt or yum install gcc-c++/g++)")
    elif readings.compiler_error:
        remedy = "install its headers (libstdc++-dev), or name another with CXX"
        yield Check("compiler", bad, f"{readings.compiler} compiles nothing: {readings.compiler_error}; {need}", remedy)
    elif not readings.python_header or not readings.ninja:
        names = [("Python.h", readings.python_header), ("ninja", readings.ninja)]
        missing = " and ".join(name for name, there in names if not there)
        remedy = "install the python3-dev package and `pip install ninja`"
        yield Check("compiler", bad, f"{readings.compiler}, but {missing} is missing; {need}", remedy)
    else:
        yield Check("compiler", "ok", readings.compiler)
    if readings.stale_locks:
        yield Check(
            "compiler",
            "warning",
            f"an interrupted build left {readings.stale_locks[0]}: the next build waits for it for ever",
            f"rm {' '.join(readings.stale_locks)}",
        )


def compiler_needed(config: Config | None) -> str:
    """The setting that has something compiled, "" if none has."""
    if config is None:
        return ""
    if config.train.compile:
        return "train.compile"
    given = config.parallel.deepspeed if isinstance(config.parallel.deepspeed, dict) else {}
    if setting(given, "zero_force_ds_cpu_optimizer", False):
        return "parallel.deepspeed.zero_force_ds_cpu_optimizer"
    if setting(given, "zero_optimization.offload_optimizer.device", "none") == "nvme":
        return "parallel.deepspeed.zero_optimization.offload_optimizer"
    return ""


def disk(readings: Readings, config: Config | None, trained: int) -> Check:
    """Room for the checkpoints that are kept, and the one being written; `trained` values, 0 if not known."""
    if config is None or not trained:
        wanted, what = DISK_WANTED, "the size of a checkpoint is not known without an estimate"
    else:
        count = (config.train.keep_checkpoints or 10) + 1
        wanted = count * trained * CHECKPOINT_BYTES_PER_VALUE
        what = f"{count} checkpoints of {trained * CHECKPOINT_BYTES_PER_VALUE / GIB:.1f} GiB"
    free = f"{readings.disk_free / GIB:.1f} GiB free for runs"
    if readings.disk_free >= wanted:
        return Check("disk", "ok", f"{free}; {what}")
    remedy = "set run.root to a larger disk, or lower train.keep_checkpoints"
    outcome: Outcome = "failed" if trained else "warning"
    return Check("disk", outcome, f"{free}, {wanted / GIB:.1f} GiB wanted: {what}", remedy)


def shared_memory(readings: Readings, config: Config | None, backend: Backend) -> Check:
    """Room for the batches that data workers have ready: they pass through /dev/shm."""
    if readings.shared_memory is None:
        return Check("shared memory", "skipped", "there is no /dev/shm on this system")
    total, free = readings.shared_memory
    wanted, what = SHARED_MEMORY_WANTED, "for data workers"
    if config is not None:
        defaults = backend.dataloader_defaults
        workers = defaults.num_workers if config.data.num_workers == "auto" else int(config.data.num_workers)
        if not workers:
            return Check("shared memory", "ok", f"{free / GIB:.2f} GiB free; this configuration has no data workers")
        ready = config.data.prefetch_factor or defaults.prefetch_factor
        wanted = config.parallel.processes * workers * ready * batch_bytes(config)
        what = f"for {config.parallel.processes} x {workers} workers with {ready} batches each"
    sizes = f"{free / GIB:.2f} of {total / GIB:.2f} GiB free in /dev/shm, {wanted / GIB:.2f} wanted {what}"
    if free >= wanted:
        return Check("shared memory", "ok", sizes)
    remedy = "start the container with --shm-size=16g (or --ipc=host), or lower data.num_workers; a full one is SIGBUS"
    return Check("shared memory", "failed", sizes, remedy)


def batch_bytes(config: Config) -> int:
    """Bytes of one batch of images, for as many cameras as robots usually have."""
    data = config.data
    offsets = data.video_delta_indices or [0]
    frames = len(range(0, len(offsets), data.action_video_freq_ratio))
    height, width = data.image_size
    return int(data.batch_size * frames * 3 * height * width * 4 * _CAMERAS)


def ports(readings: Readings) -> Check:
    """What the ranks need to find each other on one machine."""
    if not readings.localhost:
        return Check("ports", "failed", "'localhost' does not resolve", "add `127.0.0.1 localhost` to /etc/hosts")
    if readings.taken_port:
        return Check(
            "ports",
            "warning",
            f"MASTER_PORT={readings.taken_port} is in use; `vla` chooses a free port by itself",
            "unset MASTER_PORT",
        )
    return Check("ports", "ok", "localhost resolves; the launcher chooses a free port")


def devices(backend: Backend, env: dict[str, str], processes: int) -> Check:
    """Visible devices against processes."""
    probe = backend.probe(env)
    if not probe.ok:
        return Check("devices", "failed", probe.reason, probe.remedy)
    variable = backend.visible_devices_env
    limit = f" ({variable}={env[variable]})" if variable in env else ""
    if not probe.shared and processes > probe.device_count:
        return Check(
            "devices",
            "failed",
            f"{processes} processes for {probe.device_count} visible devices{limit}: two ranks would share one",
            f"--processes {probe.device_count}" + (f", or show more devices with {variable}" if variable else ""),
        )
    count = "shared by all processes" if probe.shared else f"{probe.device_count} visible{limit}"
    return Check("devices", "ok", f"{probe.reason}; {count}, {processes} wanted")


def configuration(backend: Backend, config: Config | None, env: dict[str, str]) -> Iterator[Check]:
    """The backend's own findings about configuration and environment."""
    issues = backend.check_config(plain(config) if config is not None else {}, env)
    for issue in issues:
        outcome: Outcome = "failed" if issue.level == "error" else "warning"
        yield Check("settings", outcome, f"{issue.key}: {issue.message}", issue.remedy)
    if not issues:
        what = "configuration and environment" if config is not None else "environment (no --config was given)"
        yield Check("settings", "ok", f"the backend objects to nothing in {what}")
