"""The process group: who this process is among its peers, and the few collectives the engine itself needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from vla_backend import Backend

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class World:
    """This process among its peers; collectives are no-ops for a process on its own.

    Attributes:
        rank: 0 ... world_size - 1; rank 0 logs and writes manifests.
        local_rank: rank on this machine; picks the device.
        world_size: number of processes of the job.
        device: where tensors of a collective must lie.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """Mean over all ranks; a tensor on the collective device."""
        return self.sum(tensor) / self.world_size

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks; a tensor on the collective device."""
        import torch.distributed as dist

        total = tensor.detach().to(self.device, copy=True)
        if self.world_size > 1:
            dist.all_reduce(total)
        return total

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on at least one rank."""
        return bool(self.sum(self._one(int(flag))).item())

    def from_main(self, value: int) -> int:
        """Rank 0's value, on every rank."""
        return int(self.sum(self._one(value if self.is_main else 0)).item())

    def barrier(self) -> None:
        """Wait until every rank is here."""
        # A reduction instead of `barrier()`: it works on the device the backend named.
        self.any(False)

    def _one(self, value: int) -> torch.Tensor:
        import torch

        return torch.tensor([value], dtype=torch.int64, device=self.device)


def join(backend: Backend, timeout_s: float, *, alone_too: bool = False, env: Mapping[str, str] = os.environ) -> World:
    """Join the process group named by RANK, WORLD_SIZE and LOCAL_RANK in the environment.

    Args:
        backend: device-ready.
        timeout_s: seconds until a collective that does not finish ends the job.
        alone_too: make a group of one as well; DeepSpeed cannot do without.
    """
    import torch.distributed as dist

    rank, size = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
    timeout = timedelta(seconds=timeout_s)
    if size > 1 and not dist.is_initialized():
        dist.init_process_group(backend.dist_backend, rank=rank, world_size=size, timeout=timeout)
    elif alone_too and not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend.dist_backend, store=store, rank=0, world_size=1, timeout=timeout)
    return World(rank, int(env.get("LOCAL_RANK", "0")), size, backend.collective_device)


def leave() -> None:
    """Destroy the process group, if there is one."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
