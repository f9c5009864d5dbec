"""Who the backend is and whether it can run here."""

from __future__ import annotations

from collections.abc import Mapping

from vla_backend import BackendInfo, Probe, hookimpl
from vla_backend.installed import distribution_version, package_folder, torch_build
from vla_backend_paper import hardware


@hookimpl
def backend_info() -> BackendInfo:
    # Below the CPU: slower than it, so never the automatic choice.
    return BackendInfo(device_type=hardware.DEVICE_TYPE, vendor="Paper Inc.", api="1.0", priority=-1)


@hookimpl
def probe(env: Mapping[str, str]) -> Probe:
    torch, extension = torch_build(), hardware.EXTENSION
    if torch is None:
        return Probe(ok=False, reason="torch is not installed", remedy="pip install torch")
    if extension and package_folder(extension) is None:
        return Probe(
            ok=False,
            reason=f"{extension} is not installed, which adds the device '{hardware.DEVICE_TYPE}' to torch",
            remedy=f"pip install {extension.replace('_', '-')}, in the version for torch {torch.release}",
        )
    there = hardware.present()
    if not there:
        return Probe(
            ok=False,
            reason=f"no device: there is no {hardware.DEVICE_FILES}",
            remedy="install the driver, or start the container with the devices; --backend cpu needs none",
        )
    count = hardware.visible(env, there)
    if not count:
        return Probe(
            ok=False,
            reason=f"{hardware.MASK}={env[hardware.MASK]} hides all {there} devices",
            remedy=f"unset {hardware.MASK}, or name devices from 0 to {there - 1}",
        )
    evidence = [f"{there} device{'s' * (there != 1)}", f"torch {torch.version}"]
    if extension:
        evidence.append(f"{extension} {distribution_version(extension.replace('_', '-'))}".strip())
    if hardware.MASK in env:
        evidence.append(f"{hardware.MASK}={env[hardware.MASK]}: {count} visible")
    return Probe(ok=True, reason=", ".join(evidence), device_count=count)
