"""Who the backend is and whether it can run here."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from collections.abc import Mapping

from vla_backend.markers import Phase, hookspec
from vla_backend.types import BackendInfo, Probe


@hookspec(Phase.PRE_IMPORT, returns=BackendInfo, required=True)
def backend_info() -> BackendInfo:
    """Say who answers: device type, vendor, and the generation of the contract.

    Called: once, when the plugin is activated or listed.
    Must not: import torch or the vendor's packages.
    Default: none, every plugin implements it.
    """


@hookspec(Phase.PRE_IMPORT, returns=Probe, required=True)
def probe(env: Mapping[str, str]) -> Probe:
    """Say whether this machine can run the backend, with the evidence and the number of visible devices.

    Called: before anything is launched, in the automatic choice, and by `vla backends`.
    Must not: import torch or the vendor's packages, create a device context, or raise when hardware is absent.
    Default: none, every plugin implements it.
    """
