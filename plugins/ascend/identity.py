"""Whether there is an NPU and a stack that can use it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from vla_backend import BackendInfo, Probe, hookimpl
from vla_backend.installed import distribution_version, torch_build
from vla_backend_ascend import hardware, stack
from vla_backend_ascend.cann_sim import simulated


@hookimpl
def backend_info() -> BackendInfo:
    """torch_npu registers its device as `npu`."""
    return BackendInfo(device_type="npu", vendor="Huawei")


@hookimpl
def probe(env: Mapping[str, str]) -> Probe:
    """Device nodes, driver, CANN and torch_npu are looked up on the file system; nothing is loaded."""
    if sys.platform != "linux":
        return Probe(ok=False, reason="CANN and torch_npu exist for Linux only", remedy="use --backend cpu here")
    nodes = hardware.devices()
    if not nodes:
        return Probe(
            ok=False,
            reason="no Ascend NPU: there is no /dev/davinci<n>",
            remedy="on a host install the driver (npu-smi info must list the NPUs), start a container with "
            "--device /dev/davinci0 ... or the Ascend Docker runtime; --backend cpu needs none",
        )
    found = stack.problems(env)
    mask = hardware.visible(env.get(hardware.MASK), len(nodes))
    if mask.problem:
        found.append(stack.Problem(mask.problem, mask.remedy))
    evidence = f"{len(nodes)} x /dev/davinci<n>{' of the simulated CANN' * simulated(env)}"
    if found:
        return Probe(
            ok=False,
            reason="; ".join([evidence, *(problem.reason for problem in found)]),
            remedy="; ".join(dict.fromkeys(problem.remedy for problem in found)),
        )
    torch, home = torch_build(), hardware.cann_home(env)
    versions = {
        "driver": hardware.driver_version(),
        "CANN": hardware.cann_version(home) if home else "",
        "torch": torch.version if torch else "",
        "torch_npu": distribution_version("torch_npu"),
    }
    parts = [evidence, *(f"{name} {version}" for name, version in versions.items() if version)]
    if hardware.MASK in env:
        parts.append(f"{hardware.MASK}={env[hardware.MASK]}: {mask.count} visible")
    return Probe(ok=True, reason=", ".join(parts), device_count=mask.count)
