"""An estimate and how it is shown. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

GIB: Final = 2**30


@dataclass(frozen=True)
class Estimate:
    """Memory of one device in bytes.

    `peak` is the highest sum that occurs at one moment of a training step from the second on; it is less than the sum
    of all parts, because gradients come into being while activations go.

    Attributes:
        model, backend, strategy, precision, processes, batch_size: what was estimated.
        trained: number of trained values.
        parameters: trained weights that forward and backward use.
        gradients: of the trained weights, as far as this device keeps them.
        optimizer: the optimizer's state, ZeRO's float32 weights included.
        communication: buffers in which gradients and weights are exchanged.
        frozen: networks that are not trained, by name.
        kept: what else stays between steps, by name.
        activations: batch, saved tensors and intermediate results at the highest moment of forward and backward.
        forward_backward: highest sum during forward and backward.
        update: highest sum while the optimizer works.
        notes: what was assumed.
    """

    model: str
    backend: str
    strategy: str
    precision: str
    processes: int
    batch_size: int
    trained: int
    parameters: int
    gradients: int
    optimizer: int
    communication: int
    frozen: Mapping[str, int]
    kept: Mapping[str, int]
    activations: int
    forward_backward: int
    update: int
    notes: tuple[str, ...] = field(default=())

    @property
    def peak(self) -> int:
        return max(self.forward_backward, self.update)

    def as_dict(self) -> dict[str, Any]:
        """All of it for programs; bytes."""
        return {**asdict(self), "peak": self.peak}

    def lines(self) -> list[str]:
        """For people; GiB."""
        share = f" (1/{self.processes} of it here)" if self.strategy != "ddp" and self.processes > 1 else ""
        rows = [
            ("parameters", self.parameters, f"{self.trained / 1e6:,.1f} M trained values"),
            ("gradients", self.gradients, ""),
            ("optimizer", self.optimizer, f"float32 weights and two moments{share}" if share else ""),
            ("communication", self.communication, "buffers of the collectives"),
            *((f"frozen {name}", size, "") for name, size in self.frozen.items()),
            *((name, size, "stays between steps") for name, size in self.kept.items()),
            ("activations", self.activations, "at their highest, batch included"),
            ("peak", self.peak, "in " + ("the update" if self.update > self.forward_backward else "forward/backward")),
        ]
        head = (
            f"{self.model}, backend {self.backend}, {self.strategy}, {self.processes} "
            f"process{'es' * (self.processes > 1)}, {self.precision}, {self.batch_size} samples per device"
        )
        width = max(len(name) for name, _, _ in rows)
        out = [head, f"{'':{width}}       GiB"]
        out += [f"{name:{width}}  {size / GIB:>8.3f}  {remark}".rstrip() for name, size, remark in rows]
        return out + [f"note: {note}" for note in self.notes]
