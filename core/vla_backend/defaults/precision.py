"""Default answers for `hookspecs/precision.py`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from vla_backend.markers import hookimpl

if TYPE_CHECKING:
    import torch

_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@hookimpl
def autocast_device(device_type: str) -> str:
    return device_type


@hookimpl
def fp32_region(device_type: str) -> AbstractContextManager[Any]:
    import torch

    return torch.autocast(device_type, enabled=False)


@hookimpl
def compute_dtype(requested: str) -> torch.dtype:
    import torch

    if requested not in _DTYPES:
        raise ValueError(f"precision '{requested}' is none of {', '.join(_DTYPES)}")
    dtype: torch.dtype = getattr(torch, _DTYPES[requested])
    return dtype


@hookimpl
def safe_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype


@hookimpl
def matmul_precision(level: str) -> dict[str, str]:
    import torch

    if level == "default":
        return {}
    torch.set_float32_matmul_precision(level)
    return {"float32_matmul_precision": torch.get_float32_matmul_precision()}
