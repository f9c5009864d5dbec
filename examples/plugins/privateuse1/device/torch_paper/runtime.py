"""The device module `torch.paper`: one device, synchronous, its memory a share of the host's."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch

#: Bytes the device pretends to have.
TOTAL_MEMORY = 4 * 2**30

_used = False


@dataclass(frozen=True)
class Properties:
    """What `get_device_properties` answers."""

    name: str = "Paper"
    total_memory: int = TOTAL_MEMORY


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return _used


def initialize() -> None:
    """A chip would create its context here: with the first device that is taken, or the first tensor."""
    global _used
    _used = True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    index = device if isinstance(device, int) else torch.device(device).index
    if index not in (None, 0):
        raise RuntimeError(f"there is one paper device, paper:0; asked for index {index}")
    initialize()


def synchronize(device: Any = None) -> None:
    """Nothing is ever queued."""


def get_device_properties(device: Any = None) -> Properties:
    return Properties()


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def manual_seed_all(seed: int) -> None:
    """Random numbers come from the host's generator, which torch has just seeded."""


def _is_in_bad_fork() -> bool:
    return False


class Memory:
    """Bytes held by tensors on the device; several tensors can share one block."""

    def __init__(self) -> None:
        self.allocated = self.peak = 0
        self._holders: dict[int, int] = {}
        # Gradients are freed on autograd's thread; re-entrant, because the garbage collector may free a tensor while
        # this thread counts another.
        self._lock = threading.RLock()

    def take(self, block: int, size: int) -> None:
        with self._lock:
            self._holders[block] = self._holders.get(block, 0) + 1
            if self._holders[block] == 1:
                self.allocated += size
                self.peak = max(self.peak, self.allocated)

    def release(self, block: int, size: int) -> None:
        with self._lock:
            self._holders[block] -= 1
            if not self._holders[block]:
                del self._holders[block]
                self.allocated -= size


memory = Memory()


def memory_allocated(device: Any = None) -> int:
    return memory.allocated


def memory_reserved(device: Any = None) -> int:
    return memory.allocated


def max_memory_allocated(device: Any = None) -> int:
    return memory.peak


def reset_peak_memory_stats(device: Any = None) -> None:
    memory.peak = memory.allocated
