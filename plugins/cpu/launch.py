"""Launching on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_backend import hookimpl

if TYPE_CHECKING:
    import torch


@hookimpl
def env_defaults() -> dict[str, str]:
    return {"DS_ACCELERATOR": "cpu"}


@hookimpl
def local_device() -> torch.device:
    import torch

    return torch.device("cpu", 0)
