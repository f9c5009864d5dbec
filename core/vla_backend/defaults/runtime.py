"""Default answers for `hookspecs/runtime.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vla_backend.explain import HOST, explain
from vla_backend.markers import hookimpl
from vla_backend.types import Explanation, MemoryStats

if TYPE_CHECKING:
    import torch


@hookimpl
def synchronize(device: torch.device) -> None:
    import torch

    # The CPU's device module has `synchronize` only in some releases of torch, and never needs it.
    if device.type != "cpu":
        torch.get_device_module(device.type).synchronize(device)


@hookimpl
def memory_stats(device: torch.device, reset_peak: bool) -> MemoryStats:
    import torch

    module = torch.get_device_module(device.type)

    def figure(name: str) -> int:
        read = getattr(module, name, None)
        return int(read(device)) if read is not None else 0

    total = 0
    if hasattr(module, "get_device_properties"):
        total = int(getattr(module.get_device_properties(device), "total_memory", 0))
    stats = MemoryStats(
        allocated=figure("memory_allocated"),
        reserved=figure("memory_reserved"),
        peak=figure("max_memory_allocated"),
        total=total,
    )
    if reset_peak and hasattr(module, "reset_peak_memory_stats"):
        module.reset_peak_memory_stats(device)
    return stats


@hookimpl
def rng_state(device: torch.device) -> dict[str, torch.Tensor]:
    import torch

    states = {"cpu": torch.get_rng_state()}
    module = torch.get_device_module(device.type)
    if device.type != "cpu" and hasattr(module, "get_rng_state"):
        states[device.type] = module.get_rng_state(device)
    return states


@hookimpl
def set_rng_state(device: torch.device, state: Mapping[str, torch.Tensor]) -> None:
    import torch

    torch.set_rng_state(state["cpu"])
    if device.type != "cpu" and device.type in state:
        torch.get_device_module(device.type).set_rng_state(state[device.type], device)


@hookimpl
def sampling_device(device: torch.device, distribution: str) -> torch.device:
    import torch

    return torch.device("cpu")


@hookimpl
def translate_error(error: BaseException) -> Explanation:
    return explain(error, HOST)
