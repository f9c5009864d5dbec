"""Time and memory of functions in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from statistics import median
from typing import Any

import torch

Functions = Mapping[str, Callable[[], Any]]


def seconds(functions: Functions, rounds: int, warm: Collection[str] | None = None) -> dict[str, list[float]]:
    """Processor seconds of each function per round, after one call of each (or of those in `warm`) that does not count.

    The functions take turns, so that whatever else the machine does meets all of them. Processor time of the one
    thread that computes, not the clock: waiting for a busy processor is nobody's cost.
    """
    for name, function in functions.items():
        if warm is None or name in warm:
            function()
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            function()
            taken[name].append(time.process_time() - start)
    return taken


def ratio(taken: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """Median over the rounds of slow / fast."""
    return median(a / b for a, b in zip(taken[slow], taken[fast], strict=True))


def peak_bytes(function: Callable[[], Any]) -> int:
    """Most bytes of tensors alive at once during a call, beyond those alive before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest
