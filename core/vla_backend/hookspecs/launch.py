"""What happens between the command line and the first tensor on the device."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vla_backend.markers import Phase, hookspec
from vla_backend.types import ConfigIssue, PatchReport


@hookspec(Phase.PRE_IMPORT, returns=dict)
def env_defaults(config: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that training wants on this chip.

    What the user has set in `env` stays: such answers are dropped, but for folders put in front of a `...PATH`.

    Called: by the launcher; the answer is shown and given to the child processes before they import torch.
    Must not: change `os.environ`.
    Default: nothing.
    """


@hookspec(Phase.PRE_IMPORT, returns=str)
def visible_devices_env() -> str:
    """Name of the variable that limits the devices a process sees, "" if the chip has none.

    Called: by the launcher, to name it in errors about too many processes.
    Must not: read the environment.
    Default: "".
    """


@hookspec(Phase.PRE_IMPORT, returns=list)
def check_config(config: Mapping[str, Any], env: Mapping[str, str]) -> list[ConfigIssue]:
    """Find settings that cannot work, or will work badly, on this chip.

    Called: by the launcher on the complete configuration, before any process starts.
    Must not: change the configuration.
    Default: no findings.
    """


@hookspec(Phase.PRE_IMPORT, returns=tuple)
def load_stack() -> tuple[str, ...]:
    """Import torch and the vendor's packages in the order the chip needs; answer the imported names with versions.

    Called: once per process, by `Backend.load_stack()`; afterwards the phase is pre-init.
    Must not: create a device context.
    Default: imports torch.
    """


@hookspec(Phase.PRE_INIT, returns="torch.device")
def local_device(device_type: str, local_rank: int) -> Any:
    """Make the device of this rank the current one and answer it, with its index where a process can see several.

    Called: once per process, by `Backend.local_device()`; afterwards the phase is device-ready.
    Must not: choose a device of another rank when there are too few; that is an error.
    Default: `torch.device(device_type, local_rank)`, made current through torch's device-neutral API.
    """


@hookspec(Phase.PRE_INIT, returns=tuple)
def apply_patches() -> tuple[PatchReport, ...]:
    """Apply the vendor's patches of third-party libraries and report each one, applied or not, with the reason.

    Called: once per process after `load_stack`, before a model is built; the report is logged.
    Must not: skip a patch in silence.
    Default: no patches.
    """
