"""From the text of an exception to an explanation, by tables; and the table of what goes wrong beside any chip."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from vla_backend.types import Explanation


@dataclass(frozen=True)
class KnownError:
    """One line of a table.

    Attributes:
        pattern: regular expression searched, ignoring case, in the messages of the exception and its causes.
        what, why, remedy: see `Explanation`.
    """

    pattern: str
    what: str
    why: str
    remedy: str


def explain(error: BaseException, table: Iterable[KnownError]) -> Explanation:
    """The first line of `table` that matches; put the particular before the general."""
    text = "\n".join(_messages(error))
    for known in table:
        if re.search(known.pattern, text, re.IGNORECASE | re.MULTILINE):
            return Explanation(True, known.what, known.why, known.remedy)
    return Explanation(known=False)


def _messages(error: BaseException) -> Iterator[str]:
    """The error and its causes, root cause first: a late error is often only the echo of an early one."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not seen for seen in chain):
        chain.append(current)
        current = current.__cause__ or current.__context__
    for link in reversed(chain):
        yield f"{type(link).__name__}: {link}"


HOST: Final = (
    KnownError(
        r"DataLoader worker.*killed by signal: Bus error|unable to (open|mmap|resize) shared memory|/dev/shm.*No space",
        "A data worker ran out of shared memory.",
        "Workers hand batches over through /dev/shm, and a container's default of 64 MB is too small.",
        "Start the container with --shm-size=16g (or --ipc=host), or lower data.num_workers.",
    ),
    KnownError(
        r"DataLoader worker.*killed by signal: Killed|DefaultCPUAllocator: (can't|not enough)|^MemoryError",
        "The host ran out of memory.",
        "The processes of this job together hold more than the machine or the container has.",
        "Lower data.num_workers or data.batch_size, or raise the memory limit of the container.",
    ),
    KnownError(
        r"Cannot re-initialize (CUDA|NPU|XPU) in forked subprocess",
        "A forked child process used the device.",
        "The parent had initialised the device before it forked; a device context does not survive a fork.",
        "Let the backend choose how data workers start (do not force fork), and keep tensors on the CPU in workers.",
    ),
    KnownError(
        r"Got unsupported ScalarType BFloat16",
        "A bfloat16 tensor was converted to numpy directly.",
        "numpy has no bfloat16.",
        "Use backend.to_numpy(tensor), which widens to float32 first.",
    ),
    KnownError(
        r"Inference tensors cannot be saved for backward|tensor has no storage",
        "A tensor made under torch.inference_mode met training.",
        "ZeRO-3 keeps gathered weights; those made in inference mode cannot enter autograd any more.",
        "Evaluate inside `with backend.evaluating(model):`, which uses no_grad, and restart the process.",
    ),
    KnownError(
        r"No backend type associated with device type cpu",
        "A collective got a tensor that lies on the CPU.",
        "The library of this process group moves device memory only.",
        "Create the tensor on backend.collective_device.",
    ),
    KnownError(
        r"EADDRINUSE|Address already in use",
        "A network port is taken.",
        "Another job on this machine, or a dead one that was not cleaned up, holds the rendezvous port.",
        "End the other job, or choose another MASTER_PORT.",
    ),
    KnownError(
        r"Connection (closed|reset) by peer|Broken pipe",
        "Another process of the job has ended.",
        "This rank only noticed that the connection broke.",
        "Look for the first error in the logs of the other ranks.",
    ),
    KnownError(
        r"No space left on device",
        "The disk is full.",
        "A checkpoint or log could not be written completely.",
        "Free space in the folder of the run, or lower train.keep_checkpoints; the last complete checkpoint is intact.",
    ),
)
