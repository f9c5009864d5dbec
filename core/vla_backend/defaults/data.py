"""Default answers for `hookspecs/data.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vla_backend.markers import hookimpl
from vla_backend.types import LoaderDefaults, VideoContext

if TYPE_CHECKING:
    import torch


@hookimpl
def pin_memory_ok() -> bool:
    return False


@hookimpl
def dataloader_defaults(cpu_count: int) -> LoaderDefaults:
    return LoaderDefaults(start_method="spawn", num_workers=max(0, min(4, cpu_count - 1)))


@hookimpl
def video_ctx() -> VideoContext:
    return VideoContext(decoders=("pyav", "torchcodec", "decord"))


@hookimpl
def to_numpy(tensor: torch.Tensor) -> Any:
    import torch

    host = tensor.detach().to("cpu")
    if host.layout is not torch.strided:
        host = host.to_dense()
    if host.is_floating_point() and host.dtype not in (torch.float64, torch.float32, torch.float16):
        host = host.to(torch.float32)
    # `resolve_*` because a lazy conjugate or negative view has no numpy counterpart.
    return host.resolve_conj().resolve_neg().numpy()
