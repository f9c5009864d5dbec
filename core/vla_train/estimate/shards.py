"""What ZeRO keeps on every device, from DeepSpeed's settings. No torch here.

DeepSpeed works in buffers whose sizes its configuration states, so that their memory follows from it: flat shards of
weights, gradients and optimizer state (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", section 5), and buckets for what is exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_backend.settings import setting

#: DeepSpeed's own values where a configuration is silent.
_BUCKET, _PREFETCH, _LIVE = 500_000_000, 50_000_000, 1_000_000_000


@dataclass(frozen=True)
class Shards:
    """Bytes on one device.

    Attributes:
        parameters: weights that stay; under stage 3 this device's share.
        live: weights of other devices that are here while they are used.
        gradients: the averaged gradients of this device's share.
        gradients_stay: they have a buffer of their own between steps.
        optimizer: float32 weights and the optimizer's state.
        buckets: buffers of the collectives.
        update: what the optimizer's step needs besides.
    """

    parameters: int
    live: int
    gradients: int
    gradients_stay: bool
    optimizer: int
    buckets: int
    update: int


def shards(
    stage: int,
    groups: list[int],
    processes: int,
    width: int,
    state: float,
    working: float,
    settings: Mapping[str, Any],
) -> Shards:
    """The shards of one device.

    Args:
        stage: 2 or 3.
        groups: trained values per parameter group.
        processes: number of devices that share.
        width: bytes per weight in forward and backward.
        state: bytes of optimizer state per value.
        working: bytes per value that the optimizer takes and gives back in its step.
        settings: the complete DeepSpeed configuration.
    """
    zero = setting(settings, "zero_optimization", {})
    trained, largest = sum(groups), max(groups)
    share, largest_share = -(-trained // processes), -(-largest // processes)
    bucket = int(float(setting(zero, "reduce_bucket_size", _BUCKET)))
    optimizer_away = setting(zero, "offload_optimizer.device", "none") != "none"
    # In float32 the weights of the group are copied for the step all the same.
    optimizer = 0 if optimizer_away else int((4 + state) * share)
    update = 0 if optimizer_away else int((4 + working) * largest_share)
    if stage == 2:
        buffers = 2 if setting(zero, "overlap_comm", True) else 1
        return Shards(
            parameters=width * trained,
            live=0,
            gradients=width * share,
            gradients_stay=False,
            optimizer=optimizer,
            buckets=buffers * bucket * width,
            update=update,
        )
    away = setting(zero, "offload_param.device", "none") != "none"
    # Weights used again within the reuse distance stay after their use, up to the limit; prefetching goes beyond it.
    limit = float(setting(zero, "stage3_max_live_parameters", _LIVE))
    limit += float(setting(zero, "stage3_prefetch_bucket_size", _PREFETCH))
    return Shards(
        parameters=0 if away else width * share,
        live=width * int(min(trained, limit)),
        gradients=0 if optimizer_away else width * share,
        gradients_stay=True,
        optimizer=optimizer,
        buckets=bucket * width,
        update=update,
    )
