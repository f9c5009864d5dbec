"""Environment variables that training wants on Ascend, and why."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from vla_backend.installed import package_folder
from vla_backend.settings import setting
from vla_backend_ascend import hardware

DIST_TIMEOUT: Final = 1800
#: Limits of HCCL_CONNECT_TIMEOUT in seconds.
CONNECT_TIMEOUT: Final = (120, 7200)
#: HCCL takes this many ports from HCCL_IF_BASE_PORT on, and accepts no base above the last one.
PORTS: Final = 16
LAST_BASE_PORT: Final = 65520

FIXED: Final[dict[str, str]] = {
    # torch_npu is imported by this backend, after torch; torch importing it by itself hides the cause of a failure.
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    # Never let torch_npu answer in the name of CUDA: libraries would then choose NCCL and CUDA code paths.
    "TORCH_TRANSFER_TO_NPU": "0",
    "DS_ACCELERATOR": "npu",
    # Two-stage queue of operator launches: hides launch time behind the NPU's work.
    "TASK_QUEUE_ENABLE": "2",
    # Segments that grow instead of fragmenting.
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    # Bind threads to the processors near the NPU.
    "CPU_AFFINITY_CONF": "1",
}


def defaults(config: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """All variables for the child processes; the caller leaves out those that the user has set."""
    wanted = {**FIXED, **timeouts(config)}
    if env.get("ASCEND_LAUNCH_BLOCKING") == "1":
        # Launching one by one for debugging excludes the queue.
        del wanted["TASK_QUEUE_ENABLE"]
    if "WANDB_API_KEY" not in env:
        # Compute nodes of Ascend clusters rarely reach the internet, and wandb would wait for a login.
        wanted["WANDB_MODE"] = "offline"
    if path := library_path(env):
        wanted["LD_LIBRARY_PATH"] = path
    if int(setting(config, "parallel.processes", 1)) > 1 and (port := free_base_port()):
        wanted["HCCL_IF_BASE_PORT"] = str(port)
    return wanted


def timeouts(config: Mapping[str, Any]) -> dict[str, str]:
    """HCCL's timeouts for connecting and for a collective, from the one setting that the process group uses too."""
    seconds = int(setting(config, "parallel.dist_timeout", DIST_TIMEOUT))
    low, high = CONNECT_TIMEOUT
    return {"HCCL_CONNECT_TIMEOUT": str(max(low, min(seconds, high))), "HCCL_EXEC_TIMEOUT": str(seconds)}


def library_path(env: Mapping[str, str]) -> str:
    """`LD_LIBRARY_PATH` with the library folders of torch and torch_npu in front, "" if nothing is to be added."""
    current = [folder for folder in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    folders = [str(folder / "lib") for name in ("torch", "torch_npu") if (folder := package_folder(name)) is not None]
    missing = [folder for folder in folders if folder not in current]
    if not missing:
        return ""
    return os.pathsep.join([*missing, env["LD_LIBRARY_PATH"]] if current else missing)


def free_base_port(can_bind: Callable[[int], bool] | None = None) -> int:
    """First port of a free block for HCCL, 0 if HCCL's own default (60000) is as good as any.

    Linux hands out ports up to 60999 to any connection by default, so that HCCL's default range is taken now and then.
    """
    can_bind = can_bind or _can_bind
    start = max(60000, _last_ephemeral_port() + 1)
    for base in range(start, LAST_BASE_PORT + 1, PORTS):
        if all(can_bind(port) for port in range(base, base + PORTS)):
            return base
    return 0


def taken_ports(base: int) -> list[int]:
    """Those of the block from `base` on that another process holds."""
    return [port for port in range(base, base + PORTS) if not _can_bind(port)]


def _last_ephemeral_port() -> int:
    try:
        text = (hardware.ROOT / "proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8")
        last = int(text.split()[1])
    except (OSError, ValueError, IndexError):
        return 60999
    # A range that leaves no room above it is no guide.
    return last if last + PORTS <= LAST_BASE_PORT else 59999


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
