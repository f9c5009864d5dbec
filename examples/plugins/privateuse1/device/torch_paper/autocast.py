"""What autocast means on the device: matrix products in the lower precision, everything else as its inputs are."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

_LOWER = (
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "linear",
    "matmul",
    "mm",
    "mv",
    "scaled_dot_product_attention",
)
_KEY = "AutocastPrivateUse1"
_keep: list[torch.library.Library] = []  # a registration ends with its library


def register() -> None:
    """Out-of-tree devices have no list in torch; without one, the first operator inside an autocast region fails."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _KEY)
    library = torch.library.Library("aten", "IMPL")
    for name in _LOWER:
        library.impl(name, _lowered(getattr(torch.ops.aten, name).default), _KEY)
    _keep.extend((everything, library))


def _lowered(operator: Any) -> Any:
    above = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("paper")

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            lower = tensor.is_floating_point() and tensor.dtype != torch.float64
            return tensor.to(dtype) if lower else tensor

        with torch._C._ExcludeDispatchKeyGuard(above):
            args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
            return operator(*args, **kwargs)

    return kernel
