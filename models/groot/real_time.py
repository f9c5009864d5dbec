"""Real-time chunking: a new chunk continues the one that is being executed (Black et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from vla_groot.errors import BatchError

_KEYS = ("action_horizon", "rtc_overlap_steps", "rtc_frozen_steps", "rtc_ramp_rate")


@dataclass(frozen=True)
class RealTimeChunk:
    """How much of the previous chunk a new one keeps.

    Attributes:
        action_horizon: steps of the previous chunk that were real.
        overlap: its last steps, which the new chunk begins with.
        frozen: leading steps that stay as they are.
        ramp_rate: steepness of the transition from frozen to free.
    """

    action_horizon: int
    overlap: int
    frozen: int
    ramp_rate: float

    @classmethod
    def from_options(cls, options: Mapping[str, Any] | None, horizon: int) -> RealTimeChunk:
        """From the keys action_horizon, rtc_overlap_steps, rtc_frozen_steps, rtc_ramp_rate.

        Raises:
            BatchError: a key is missing, or the numbers do not fit together or the model's `horizon`.
        """
        given = options or {}
        missing = [key for key in _KEYS if given.get(key) is None]
        if missing:
            raise BatchError(
                "Real-time chunking lacks options.",
                why=f"a previous action was given, but not: {', '.join(missing)}",
                fix=f"give all of {', '.join(_KEYS)}, or no previous action",
            )
        horizon_before, overlap, frozen = (int(given[key]) for key in _KEYS[:3])
        chunk = cls(horizon_before, overlap, frozen, float(given["rtc_ramp_rate"]))
        if not 0 <= chunk.frozen <= chunk.overlap <= min(chunk.action_horizon, horizon):
            raise BatchError(
                "The options of real-time chunking do not fit together.",
                why=f"frozen {chunk.frozen}, overlap {chunk.overlap}, action_horizon {chunk.action_horizon}, "
                f"model horizon {horizon}",
                fix="choose 0 <= rtc_frozen_steps <= rtc_overlap_steps <= action_horizon",
            )
        return chunk

    def start(self, noise: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """`noise` (B, H, A) beginning with the last `overlap` real steps of `previous` (B, >= action_horizon, A)."""
        if previous.shape[0] != noise.shape[0] or previous.shape[-1] != noise.shape[-1]:
            raise BatchError(
                f"The previous action is {tuple(previous.shape)}.",
                why=f"({noise.shape[0]}, at least {self.action_horizon}, {noise.shape[-1]}) is needed",
                fix="give the normalised, padded actions of the previous prediction",
            )
        if previous.shape[1] < self.action_horizon:
            raise BatchError(
                f"The previous action has {previous.shape[1]} steps.",
                why=f"options say action_horizon {self.action_horizon}",
                fix="give the whole previous chunk, or a smaller action_horizon",
            )
        kept = previous[:, self.action_horizon - self.overlap : self.action_horizon].to(noise)
        return torch.cat([kept, noise[:, self.overlap :]], dim=1)

    def strength(self, actions: torch.Tensor) -> torch.Tensor:
        """Factor of the velocity per step, (1, H, 1): 0 while frozen, then rising exponentially to 1 at the overlap."""
        horizon = actions.shape[1]
        factor = torch.ones(horizon, dtype=torch.float32)
        factor[: self.frozen] = 0.0
        ramp = torch.linspace(0, 1, self.overlap - self.frozen + 2)
        ramp = 1 - torch.exp(-self.ramp_rate * ramp)
        ramp = ramp / ramp[-1].clamp(min=1e-8)
        factor[self.frozen : self.overlap] = ramp[1:-1]
        return factor.to(device=actions.device, dtype=actions.dtype)[None, :, None]
