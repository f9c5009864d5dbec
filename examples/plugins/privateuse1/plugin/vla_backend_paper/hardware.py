"""What this machine has, found without importing torch or the vendor's packages. Adapt this file first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: torch's name of the device: what `tensor.device.type` says.
DEVICE_TYPE: Final = "paper"
#: The package that adds the device to torch, "" if torch knows it by itself.
EXTENSION: Final = "torch_paper"
#: What an absent device is explained with; this chip has no driver.
DEVICE_FILES: Final = "paper in this machine"
#: Variable that limits the devices a process sees, as comma-separated numbers.
MASK: Final = "PAPER_VISIBLE_DEVICES"


def present() -> int:
    """Devices in this machine: the chip computes on the host, which is always there."""
    return 1


def visible(env: Mapping[str, str], there: int) -> int:
    """How many of `there` devices the mask leaves; numbers of devices that do not exist count nothing."""
    if MASK not in env:
        return there
    numbers = {part.strip() for part in env[MASK].split(",")}
    return len(numbers & {str(number) for number in range(there)})
