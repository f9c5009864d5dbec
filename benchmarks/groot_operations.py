"""Operations of GR00T's steps by part: how much of upstream's work is needed, whatever the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

#: Endings of the names of a part's modules.
PARTS = {
    "vision tower": (".visual",),
    "language layers": (".language_model.language_model", "model.language_model"),
    "language head": (".lm_head",),
    "self-attention on the features": ("vl_self_attention", "FeatureSelfAttention"),
}
REST = "diffusion transformer, its keys and values, encoders and decoder"


def count(function: Callable[[], Any]) -> dict[str, float]:
    """Billions of floating-point operations of a step by part, and as "all".

    Matrix products and convolutions, forward and backward, two per multiplication with addition. Attention itself is
    not counted on a CPU.
    """
    with FlopCounterMode(display=False) as counter:
        function()
    counts = {name: sum(by.values()) / 1e9 for name, by in counter.get_flop_counts().items()}
    found = {
        part: max((value for name, value in counts.items() if name.endswith(endings)), default=0.0)
        for part, endings in PARTS.items()
    }
    total = counter.get_total_flops() / 1e9
    return {**found, REST: total - sum(found.values()), "all": total}
