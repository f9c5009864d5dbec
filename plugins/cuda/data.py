"""Getting data to GPUs."""

from __future__ import annotations

from vla_backend import VideoContext, hookimpl


@hookimpl
def pin_memory_ok() -> bool:
    """Copies from pinned memory overlap with computing."""
    return True


@hookimpl
def video_ctx(machine: str) -> VideoContext:
    """The upstream projects' decoder first, on the CPU; decord has wheels for x86-64 only."""
    if machine.lower() in ("x86_64", "amd64"):
        return VideoContext(decoders=("decord", "torchcodec", "pyav"))
    return VideoContext(decoders=("torchcodec", "pyav"))
