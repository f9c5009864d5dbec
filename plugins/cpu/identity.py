"""The CPU is always there."""

from __future__ import annotations

import os
import platform

from vla_backend import BackendInfo, Probe, hookimpl


@hookimpl
def backend_info() -> BackendInfo:
    return BackendInfo(device_type="cpu", vendor=platform.machine(), priority=0)


@hookimpl
def probe() -> Probe:
    return Probe(ok=True, reason=f"{os.cpu_count()} processors", device_count=1, shared=True)
