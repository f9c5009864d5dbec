"""Which tensor storages are alive, and how many bytes they take."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Allocators of accelerators hand out multiples of this (torch's c10::CachingAllocator, kMinBlockSize).
BLOCK = 512
_DEVICE = torch.ops.prim.device.default


class LiveMemory(TorchDispatchMode):
    """Entered around a training step, it knows the live storages after every operation, saved tensors included.

    Memory that an operation takes and returns within itself (workspaces of a kernel) is not seen.

    Attributes:
        now: bytes alive, each storage rounded up to the allocator's block.
        peak: the highest `now` since `reset_peak`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        # A storage object lives exactly as long as its memory, so its address is its name meanwhile.
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}

    def note(self, tensors: Iterable[torch.Tensor | None], *, elsewhere: bool = False) -> int:
        """Count tensors that exist already; answers their bytes.

        Args:
            tensors: views of one storage count once.
            elsewhere: they lie in other memory and count nothing, here and as views later.
        """
        before = self.now
        for tensor in tensors:
            if tensor is not None:
                self._see(tensor, counted=not elsewhere)
        return self.now - before

    def reset_peak(self) -> None:
        self.peak = self.now

    def _see(self, tensor: torch.Tensor, counted: bool = True) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._alive:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK if counted else 0
        self._alive[key] = (weakref.ref(storage, functools.partial(self._gone, key)), size)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int, _: object) -> None:
        self.now -= self._alive.pop(key)[1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # four of five calls, and slow by way of all other modes
        answer = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(answer):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf)
        return answer
