"""`python -m benchmarks` (or `make bench`): measure everything and write docs/benchmarks.md.

`python -m benchmarks data groot` measures these parts alone and prints them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from vla_backend import activate

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
#: The calls of the backend come first: once something was compiled, every Python call of the process is slower.
PARTS = ("backend", "steps", "memory", "parts", "scaling", "data", "groot")

#: Freed memory stays with the process, as an accelerator's allocator keeps it. Otherwise the kernel clears the pages
#: of every large tensor anew, and upstream's way, which has more of them, loses another 20 % of its time.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_TOP_PAD_": str(2**26)}


def main(arguments: list[str]) -> int:
    """Measure, write the page if everything was asked for, answer 1 if a bound does not hold."""
    unknown = sorted(set(arguments) - set(PARTS))
    if unknown:
        print(f"there is no part {', '.join(unknown)}; parts are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    start_again_with(ALLOCATOR)
    backend = activate("cpu")
    backend.load_stack()
    import torch

    from benchmarks import backend_calls, data_path, dit4dit, groot, report

    torch.set_num_threads(1)
    backend.local_device(0)
    backend.apply_patches()
    measure = {
        "backend": lambda: [backend_calls.measure(backend)],
        "steps": lambda: [dit4dit.steps(backend)],
        "memory": lambda: [dit4dit.memory(backend)],
        "parts": lambda: [dit4dit.parts(backend)],
        "scaling": lambda: [dit4dit.scaling(backend)],
        "data": lambda: [data_path.measure_all(backend)],
        "groot": lambda: groot.measure_all(backend),
    }
    start, sections = time.perf_counter(), []
    for part in arguments or PARTS:
        begun, worked = time.perf_counter(), time.process_time()
        sections += measure[part]()
        spent = f"{time.perf_counter() - begun:.0f} s, {time.process_time() - worked:.0f} s of the processor"
        print(f"{part}: {spent}", file=sys.stderr, flush=True)
    page = report.markdown(sections, (time.perf_counter() - start) / 60)
    if not arguments:
        PAGE.write_text(page)
    print(page)
    failed = [row.what for section in sections for row in section.rows if row.holds is False]
    for what in failed:
        print(f"a bound does not hold: {what}", file=sys.stderr)
    return 1 if failed else 0


def start_again_with(variables: dict[str, str]) -> None:
    """Replace this process by one that has the variables; returns if they are set already."""
    if not variables.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], {**os.environ, **variables})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
