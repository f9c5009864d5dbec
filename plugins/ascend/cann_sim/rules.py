"""What a 910B refuses where the CPU kernels would accept."""

from __future__ import annotations


def install(bridged: set[str]) -> None: ...
