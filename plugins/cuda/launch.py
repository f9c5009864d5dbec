"""Launching on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vla_backend import ConfigIssue, hookimpl
from vla_backend.installed import torch_build
from vla_backend.settings import setting
from vla_backend_cuda import hardware

#: Seconds after which NCCL's own monitor ends a process whose watchdog thread hangs, unless told otherwise.
_MONITOR_SECONDS: Final = 480


@hookimpl
def visible_devices_env() -> str:
    """The runtime numbers the devices that this variable leaves; ROCm reads it as well."""
    return "CUDA_VISIBLE_DEVICES"


@hookimpl
def env_defaults(config: Mapping[str, Any]) -> dict[str, str]:
    """No other vendor's extension, and no watchdog that ends the job before the timeout asked for."""
    wanted = {
        "DS_ACCELERATOR": "cuda",
        # Another vendor's extension that happens to be installed refuses a torch built for CUDA.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    timeout = int(setting(config, "parallel.dist_timeout", 0))
    if timeout > _MONITOR_SECONDS:
        # Otherwise the monitor ends the job before the timeout that was asked for.
        wanted["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = str(timeout)
    return wanted


@hookimpl
def check_config(env: Mapping[str, str]) -> list[ConfigIssue]:
    """A mask that names GPUs that are not there is cut short by the runtime without a word."""
    torch = torch_build()
    hip = bool(torch and torch.hip)
    name = hardware.mask_name(env, hip)
    _, dropped = hardware.visible(env.get(name), hardware.amd() if hip else hardware.nvidia())
    if not dropped:
        return []
    return [ConfigIssue("warning", name, f"{name}={env[name]}: {dropped}", "name only GPUs that exist, each once")]
