"""Number formats: autocast, full-precision regions, what the chip can compute in."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from vla_backend.markers import Phase, hookspec


@hookspec(Phase.DEVICE_READY, returns=str)
def autocast_device(device_type: str) -> str:
    """The device type that `torch.autocast` must be given.

    Called: once; `Backend.autocast(dtype)` uses it around every forward pass.
    Must not: answer another device's type to make code written for it run.
    Default: `device_type`.
    """


@hookspec(Phase.DEVICE_READY, returns=object)
def fp32_region(device_type: str) -> AbstractContextManager[Any]:
    """A context in which arithmetic on float32 inputs stays float32, also inside an autocast region.

    Called: by models around numerically sensitive parts; the caller casts the inputs to float32 itself.
    Must not: be a no-op while autocast is on.
    Default: autocast switched off for `device_type`.
    """


@hookspec(Phase.PRE_INIT, returns="torch.dtype")
def compute_dtype(requested: str) -> Any:
    """The dtype for `requested` ("fp32", "bf16" or "fp16"), or `Unsupported(reason)` if the chip cannot train in it.

    Called: once per process, with `parallel.mixed_precision`.
    Must not: answer another precision than the one requested.
    Default: the torch dtype of that name.
    """


@hookspec(Phase.PRE_INIT, returns="torch.dtype")
def safe_dtype(dtype: Any) -> Any:
    """The dtype in which a tensor of `dtype` can be put on the device.

    Called: for every tensor of a batch that is moved to the device.
    Must not: narrow a dtype that the chip can hold.
    Default: `dtype`.
    """


@hookspec(Phase.PRE_INIT, returns=dict)
def matmul_precision(level: str) -> dict[str, str]:
    """Set how float32 matrix products and convolutions are computed; answer the settings made.

    `level` is "highest" (true float32), "high" (reduced formats allowed) or "default" (torch's and the vendor's own).

    Called: once per process, with `train.matmul_precision`.
    Must not: change anything for "default".
    Default: `torch.set_float32_matmul_precision(level)`.
    """
