"""Data workers beside a trainer that itself computes on the processors.

Never pinned, decoders in the default order (PyAV first: the fastest of the three for short seeks on the CPU).
"""

from __future__ import annotations

from vla_backend import LoaderDefaults, hookimpl


@hookimpl
def dataloader_defaults(cpu_count: int) -> LoaderDefaults:
    """One worker for four processors: decoding is a small part of a step here, and workers take time from it.

    "spawn" although a fork would start faster: a forked child inherits decoder and OpenMP thread pools whose threads
    do not exist in it, which hangs or corrupts frames. Persistent workers pay the imports once.
    """
    workers = min(4, cpu_count // 4)
    return LoaderDefaults(start_method="spawn", num_workers=workers)
