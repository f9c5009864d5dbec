"""Getting data to the device and back."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from typing import Any

from vla_backend.markers import Phase, hookspec
from vla_backend.types import LoaderDefaults, VideoContext


@hookspec(Phase.PRE_IMPORT, returns=bool)
def pin_memory_ok() -> bool:
    """Whether host batches may be pinned for this device.

    Called: once, when the data loader is built.
    Must not: answer true where pinning is only accepted and does nothing.
    Default: false.
    """


@hookspec(Phase.PRE_IMPORT, returns=LoaderDefaults)
def dataloader_defaults(cpu_count: int) -> LoaderDefaults:
    """Start method and number of data workers for a machine with `cpu_count` processors for this rank.

    Called: once, when the data loader is built; the configuration overrides the numbers.
    Must not: answer "fork" where the device runtime does not survive it.
    Default: "spawn", at most 4 workers, one processor left to the trainer.
    """


@hookspec(Phase.PRE_IMPORT, returns=VideoContext)
def video_ctx(machine: str) -> VideoContext:
    """Decoders in order of preference on this processor architecture (`platform.machine()`), and where they decode.

    Called: once; the answer is handed to the data workers.
    Must not: name a device on which the decoders cannot decode.
    Default: PyAV, torchcodec, decord on the CPU.
    """


@hookspec(Phase.PRE_INIT, returns=object)
def to_numpy(tensor: Any) -> Any:
    """A numpy array with the values of `tensor`, whatever its device, dtype, layout and autograd state.

    Called: wherever a result leaves torch.
    Must not: lose precision; formats that numpy lacks (bfloat16, float8) become float32.
    Default: detach, copy to the host, widen if needed.
    """
