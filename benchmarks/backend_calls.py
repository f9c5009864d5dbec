"""What the backend layer costs: per resolved call, and all calls of a training step together.

The cost of a call is the facade's time minus the time of the plugin's function called directly, so it holds only what
the layer adds. The share of a step is counted on the real DiT4DiT step of the demo's model.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.demo_step import DemoStep
from benchmarks.report import Row, Section
from vla_backend import Backend
from vla_backend.defaults import precision, runtime

#: Calls per measurement; the minimum of several is taken because other work only ever adds time.
CALLS = 50_000


def measure(backend: Backend) -> Section:
    """Rows "resolved value", "resolved call", "calls of a step"; the backend is device-ready."""
    value = _nanoseconds(lambda: backend.dist_backend) - _nanoseconds(lambda: None)
    call = _nanoseconds(lambda: backend.safe_dtype(torch.float32)) - _nanoseconds(
        lambda: precision.safe_dtype(torch.float32)
    )
    device = backend.device
    two = _nanoseconds(lambda: backend.sampling_device("beta")) - _nanoseconds(
        lambda: runtime.sampling_device(device, "beta")
    )
    rows = [
        Row("a resolved value (`backend.dist_backend`)", f"{value:.0f} ns", "300 ns", value < 300),
        Row("a resolved call, one argument (`safe_dtype`)", f"{call:.0f} ns", "300 ns", call < 300),
        Row("a resolved call, two arguments (`sampling_device`)", f"{two:.0f} ns", "300 ns", two < 300),
    ]
    return Section(
        "The backend layer",
        "Nanoseconds that a call costs beyond the plugin's own function, and all calls of the demonstration's step.",
        [*rows, _share_of_a_step(backend, call)],
    )


def _nanoseconds(function: Callable[[], Any]) -> float:
    # Processor time: on a busy machine the clock would count other work too.
    return min(timeit.repeat(function, timer=time.process_time, number=CALLS, repeat=20)) / CALLS * 1e9


def _share_of_a_step(backend: Backend, call: float) -> Row:
    step = DemoStep(backend)
    step()
    counts: Counter[str] = Counter()
    calls = backend._calls
    originals = dict(calls)
    for name, function in originals.items():

        def counted(*arguments: Any, name: str = name, function: Callable[..., Any] = function) -> Any:
            counts[name] += 1
            return function(*arguments)

        calls[name] = counted
    step()
    calls.update(originals)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    share = sum(counts.values()) * call * 1e-9 / statistics.median(seconds)
    made = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    return Row(
        f"all {sum(counts.values())} backend calls of a training step ({made})",
        f"{share:.5%} of {statistics.median(seconds):.3f} s",
        "0.1 %",
        share < 0.001,
    )
