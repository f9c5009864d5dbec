"""Default answers for `hookspecs/launch.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_backend.markers import hookimpl
from vla_backend.types import ConfigIssue, PatchReport

if TYPE_CHECKING:
    import torch


@hookimpl
def env_defaults() -> dict[str, str]:
    return {}


@hookimpl
def visible_devices_env() -> str:
    return ""


@hookimpl
def check_config() -> list[ConfigIssue]:
    return []


@hookimpl
def load_stack() -> tuple[str, ...]:
    import torch

    return (f"torch {torch.__version__}",)


@hookimpl
def local_device(device_type: str, local_rank: int) -> torch.device:
    import torch

    module = torch.get_device_module(device_type)
    count = module.device_count()
    if local_rank >= count:
        raise RuntimeError(f"local rank {local_rank} has no device of its own: {count} visible of type '{device_type}'")
    module.set_device(local_rank)
    return torch.device(device_type, local_rank)


@hookimpl
def apply_patches() -> tuple[PatchReport, ...]:
    return ()
