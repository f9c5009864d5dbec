"""Getting data to NPUs.

Not pinned (the default): torch_npu pins host tensors only after the NPU is initialised, and refuses device tensors;
whether it speeds up training is unknown. Data workers are spawned (the default): a forked one that touches the NPU
fails, and torch_npu does not notice every fork.
"""

from __future__ import annotations

from vla_backend import VideoContext, hookimpl


@hookimpl
def video_ctx(machine: str) -> VideoContext:
    """PyAV has wheels everywhere; decord has none for aarch64, which most Ascend hosts are."""
    if machine.lower() in ("x86_64", "amd64"):
        return VideoContext(decoders=("pyav", "decord", "torchcodec"))
    return VideoContext(decoders=("pyav", "torchcodec"))
