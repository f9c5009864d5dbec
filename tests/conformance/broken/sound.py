"""Sound plugins; every broken one differs from one of these by its mistake alone."""

from __future__ import annotations

from vla_backend import BackendInfo, Probe, hookimpl


class Absent:
    """A chip that is not in this machine."""

    @hookimpl
    def backend_info():
        return BackendInfo(device_type="mychip", vendor="Test")

    @hookimpl
    def probe(env):
        return Probe(ok=False, reason="no mychip here", remedy="plug one in")

    @hookimpl
    def dist_backend():
        return "gloo"


class Present:
    """A chip that is here: the processor, under this plugin's answers."""

    @hookimpl
    def backend_info():
        return BackendInfo(device_type="cpu", vendor="Test")

    @hookimpl
    def probe(env):
        return Probe(ok=True, reason="always", device_count=1, shared=True)

    @hookimpl
    def dist_backend():
        return "gloo"

    @hookimpl
    def local_device(device_type, local_rank):
        import torch

        return torch.device("cpu")
