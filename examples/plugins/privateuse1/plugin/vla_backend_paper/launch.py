"""What happens between the command line and the first tensor on the device."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from vla_backend import ConfigIssue, hookimpl
from vla_backend.settings import setting
from vla_backend_paper import hardware


@hookimpl
def env_defaults() -> dict[str, str]:
    """`load_stack` imports the one extension that is wanted; another vendor's would take its place in torch."""
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@hookimpl
def visible_devices_env() -> str:
    return hardware.MASK


@hookimpl
def check_config(config: Mapping[str, Any]) -> list[ConfigIssue]:
    strategy = setting(config, "parallel.strategy", "ddp")
    if strategy == "ddp":
        return []
    message = f"{strategy} needs DeepSpeed, which has no accelerator for the device 'paper'"
    return [ConfigIssue("error", "parallel.strategy", message, "set parallel.strategy=ddp")]


@hookimpl
def load_stack() -> tuple[str, ...]:
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import torch

    loaded = [f"torch {torch.__version__}"]
    if hardware.EXTENSION:
        extension = importlib.import_module(hardware.EXTENSION)
        loaded.append(f"{hardware.EXTENSION} {getattr(extension, '__version__', '')}".strip())
    return tuple(loaded)
