"""`python -m benchmarks` (or `make bench`): measure everything and write docs/benchmarks.md."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from vla_backend import activate

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

#: Freed memory stays with the process, as an accelerator's allocator keeps it. Otherwise the kernel clears the pages
#: of every large tensor anew, and upstream's way, which has more of them, loses another 20 % of its time.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_TOP_PAD_": str(2**26)}


def main() -> int:
    """Measure, write the page, answer 1 if a bound does not hold."""
    start_again_with(ALLOCATOR)
    backend = activate("cpu")
    backend.load_stack()
    import torch

    from benchmarks import backend_calls, dit4dit, groot, report

    start = time.perf_counter()
    torch.set_num_threads(1)
    backend.local_device(0)
    backend.apply_patches()
    sections = [*dit4dit.measure_all(backend), *groot.measure_all(backend), backend_calls.measure(backend)]
    page = report.markdown(sections, (time.perf_counter() - start) / 60)
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
    raise SystemExit(main())
