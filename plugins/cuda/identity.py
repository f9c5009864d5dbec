"""Whether there is a GPU and a torch that can use it."""

from __future__ import annotations

from collections.abc import Mapping

from vla_backend import BackendInfo, Probe, hookimpl
from vla_backend.installed import torch_build
from vla_backend_cuda import hardware


@hookimpl
def backend_info() -> BackendInfo:
    """ROCm builds of torch use the same device type."""
    torch = torch_build()
    return BackendInfo(device_type="cuda", vendor="AMD" if torch and torch.hip else "NVIDIA")


@hookimpl
def probe(env: Mapping[str, str]) -> Probe:
    """Device nodes and driver files are looked up; a context would cost memory in every process."""
    torch = torch_build()
    hip = bool(torch and torch.hip)
    gpus = hardware.amd() if hip else hardware.nvidia()
    if not gpus.count:
        missing = "no AMD GPU: /dev/kfd lists none" if hip else "no NVIDIA GPU: there is no /dev/nvidia<n>"
        return Probe(
            ok=False,
            reason=missing + _build_problem(),
            remedy="install the driver, or start the container with its GPUs (--gpus all); --backend cpu needs none",
        )
    if torch is None or not (torch.cuda or torch.hip):
        return Probe(
            ok=False,
            reason=f"{gpus.evidence}{_build_problem()}",
            remedy="install the CUDA build of the same torch version (the selector on pytorch.org prints the command)",
        )
    name = hardware.mask_name(env, hip)
    count, dropped = hardware.visible(env.get(name), gpus)
    made_for = f"torch {torch.version} for ROCm {torch.hip}" if hip else f"torch {torch.version} for CUDA {torch.cuda}"
    reason = "; ".join(
        part
        for part in (
            f"{gpus.evidence}, {made_for}",
            f"{name}={env[name]}: {count} visible" if name in env else "",
            dropped,
            hardware.too_old(gpus.driver, torch.cuda),
        )
        if part
    )
    if not count:
        return Probe(ok=False, reason=reason, remedy=f"unset {name}, or name GPUs from 0 to {gpus.count - 1}")
    return Probe(ok=True, reason=reason, device_count=count)


def _build_problem() -> str:
    torch = torch_build()
    if torch is None:
        return "; torch is not installed"
    return "" if torch.cuda or torch.hip else f"; torch {torch.version} is built without CUDA"
