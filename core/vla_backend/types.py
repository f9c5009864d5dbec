"""The answers of hooks: plain frozen dataclasses, importable without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Unsupported:
    """The answer "cannot": the facade turns it into an `UnsupportedError` that quotes the reason."""

    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class BackendInfo:
    """Who answers.

    Attributes:
        device_type: torch's device type string, e.g. what `tensor.device.type` says.
        vendor: maker of the chip; several vendors may share a device type.
        api: generation of the contract the plugin was written for, "major.minor".
        priority: rank in the automatic choice; higher wins, equal is ambiguous. Accelerators use 10, the CPU 0.
    """

    device_type: str
    vendor: str
    api: str = "1.0"
    priority: int = 10


@dataclass(frozen=True)
class Probe:
    """Whether a backend can run here, found without importing torch and without touching the device.

    Attributes:
        ok: true if a job may start.
        reason: the evidence, or what is missing.
        remedy: what to do when `ok` is false.
        device_count: devices visible to this process.
        shared: true if several processes may use one device (a CPU), so that the count does not limit them.
    """

    ok: bool
    reason: str
    remedy: str = ""
    device_count: int = 0
    shared: bool = False


@dataclass(frozen=True)
class ConfigIssue:
    """One finding of `check_config`; an "error" stops the job before anything is loaded.

    `chinese` says message and remedy once more, one paragraph; "" if nobody has written it.
    """

    level: Literal["error", "warning"]
    key: str
    message: str
    remedy: str = ""
    chinese: str = ""


@dataclass(frozen=True)
class PatchReport:
    """One patch of a library: applied or not, and why."""

    name: str
    applied: bool
    detail: str


@dataclass(frozen=True)
class Explanation:
    """A vendor error in plain words. `known` is false when the backend has nothing to add.

    `chinese` says the three once more, one paragraph; "" if nobody has written it.
    """

    known: bool
    what: str = ""
    why: str = ""
    remedy: str = ""
    chinese: str = ""


@dataclass(frozen=True)
class MemoryStats:
    """Device memory of this process in bytes; `total` is the capacity of the device."""

    allocated: int
    reserved: int
    peak: int
    total: int


@dataclass(frozen=True)
class LoaderDefaults:
    """How data workers start and how many there are.

    Attributes:
        start_method: "fork", "spawn" or "forkserver".
        num_workers: worker processes per rank.
        prefetch_factor: batches each worker keeps ready.
    """

    start_method: Literal["fork", "spawn", "forkserver"]
    num_workers: int
    prefetch_factor: int = 2


@dataclass(frozen=True)
class VideoContext:
    """Where and with what video is decoded; picklable, handed to data workers.

    Attributes:
        decoders: "pyav", "decord", "torchcodec" in order of preference; the first installed and able one is used.
        device: device string for the decoder; "cpu" unless the chip has a decoder the library can use.
        threads: decoding threads per reader; 0 lets the library choose.
    """

    decoders: tuple[str, ...]
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True)
class OptimizerChoice:
    """An optimizer class as "module:attribute" and the keyword arguments that make it fast on this chip."""

    path: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AttentionNeeds:
    """What an attention call needs, so that a backend can choose an implementation that computes the same thing."""

    head_dim: int = 64
    causal: bool = False
    mask: Literal["none", "bool", "additive"] = "none"
    dropout: bool = False
    training: bool = True


@dataclass(frozen=True)
class FusedKernels:
    """Operators that the chip has in one piece; `None` where torch's own composition is to be used.

    Each equals the composition up to rounding, forward and backward, in the dtype of its inputs.

    Attributes:
        attention: `(query, key, value, mask) -> out`, all (B, heads, L or S, head); scale 1 / sqrt(head); `mask`
            broadcasts to (B, heads, L, S), is true at the keys to attend to or is added to the scores, or `None`.
        rms_norm: `(x, weight, eps) -> x / sqrt(mean(x^2) + eps) * weight` over the last axis (Zhang and Sennrich 2019).
        rotary: `(x, cos, sin) -> x * cos + [-x2 | x1] * sin` with x = [x1 | x2] split in the middle of the last axis
            (Su et al. 2021); x (B, heads, L, head), cos and sin (L, head).
    """

    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor] | None = None
    rms_norm: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor] | None = None
    rotary: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] | None = None


@dataclass(frozen=True)
class DeepSpeedTuning:
    """A DeepSpeed configuration made fit for the chip, and one sentence per change."""

    config: Mapping[str, Any]
    changes: tuple[str, ...] = ()


class ShardedState(Protocol):
    """What `save_sharded` writes and `load_sharded` fills; the engine implements it.

    Attributes:
        rank: this process.
        world_size: number of processes.
        deepspeed: the DeepSpeed engine if the job runs under ZeRO, else `None`.
    """

    rank: int
    world_size: int
    deepspeed: Any

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of model and optimizer by name; on every rank the same names."""

    def load_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors back in place; a missing, unknown or misshapen name is an error."""
