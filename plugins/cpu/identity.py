"""The CPU is always there."""

from __future__ import annotations

import os
import platform

from vla_backend import BackendInfo, Probe, hookimpl
from vla_backend.installed import torch_build


@hookimpl
def backend_info() -> BackendInfo:
    """Priority 0: any accelerator that can run is preferred."""
    return BackendInfo(device_type="cpu", vendor=platform.machine(), priority=0)


@hookimpl
def probe() -> Probe:
    """Only torch is needed; all processes share the processors."""
    torch = torch_build()
    if torch is None:
        return Probe(ok=False, reason="torch is not installed", remedy="pip install torch", shared=True)
    return Probe(ok=True, reason=f"{os.cpu_count()} processors, torch {torch.version}", device_count=1, shared=True)
