from __future__ import annotations

import types

import torch

calls: list[tuple] = []
_state = {"initialized": False, "bf16": True, "rng": torch.arange(16, dtype=torch.uint8)}


class _Switch:
    def __init__(self, allow_hf32: bool) -> None:
        self.allow_hf32 = allow_hf32


matmul, conv = _Switch(False), _Switch(True)


def _lazy_init() -> None:
    _state["initialized"] = True


def is_initialized() -> bool:
    return _state["initialized"]


def is_available() -> bool:
    return True


def device_count() -> int:
    return 2


def set_device(device) -> None:
    _lazy_init()
    calls.append(("set_device", device))


def current_device() -> int:
    _lazy_init()
    return calls[-1][1] if calls else 0


def synchronize(device=None) -> None:
    calls.append(("synchronize", device))


def is_bf16_supported() -> bool:
    _lazy_init()
    return _state["bf16"]


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16, torch.float32]


def memory_allocated(device=None) -> int:
    return 10


def memory_reserved(device=None) -> int:
    return 20


def max_memory_allocated(device=None) -> int:
    return 30


def reset_peak_memory_stats(device=None) -> None:
    calls.append(("reset_peak_memory_stats", device))


def get_device_properties(device=None):
    return types.SimpleNamespace(name="Ascend910B3", total_memory=64 * 2**30)


def get_device_capability(device=None) -> None:
    return None


def get_rng_state(device="npu") -> torch.Tensor:
    return _state["rng"].clone()


def set_rng_state(new_state, device="npu") -> None:
    _state["rng"] = new_state.clone()
