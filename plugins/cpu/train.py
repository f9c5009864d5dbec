"""Training on the CPU."""

from __future__ import annotations

from vla_backend import hookimpl


@hookimpl
def dist_backend() -> str:
    return "gloo"
