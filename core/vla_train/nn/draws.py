"""The single source of a model's random numbers, so that a run can be repeated or replayed exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

KINDS = ("randn", "rand", "randn_like", "beta")


class DrawError(RuntimeError):
    """A replayed run asked for another random tensor than the recorded one."""


class Draws:
    """Draws with torch's own functions: `torch.randn`, `torch.rand`, `torch.randn_like` and `Beta.sample`.

    Args:
        generator: generator to draw from; None takes torch's default generator of each device. A generator on another
            device than the wanted tensor draws there and the result is moved.
        beta_device: device for Beta samples. Several chips have no Dirichlet kernel, so the default is the CPU; a
            backend names its own with `backend.sampling_device("beta")`.
    """

    def __init__(self, generator: torch.Generator | None = None, beta_device: torch.device | str = "cpu") -> None:
        self.generator = generator
        self.beta_device = torch.device(beta_device)

    def randn(
        self, shape: Sequence[int], *, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Standard normal tensor of `shape`."""
        return torch.randn(tuple(shape), generator=self.generator, device=self._drawn_on(device), dtype=dtype).to(
            device
        )

    def rand(
        self, shape: Sequence[int], *, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Uniform tensor on [0, 1) of `shape`."""
        return torch.rand(tuple(shape), generator=self.generator, device=self._drawn_on(device), dtype=dtype).to(device)

    def randn_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Standard normal tensor with the shape, dtype and device of `tensor`."""
        if self.generator is None:
            return torch.randn_like(tensor)
        return self.randn(tensor.shape, device=tensor.device, dtype=tensor.dtype)

    def beta(self, alpha: float, beta: float, count: int, *, device: torch.device | str) -> torch.Tensor:
        """`count` float32 samples of Beta(alpha, beta).

        torch's Beta takes no generator, so this always draws from the default generator of `beta_device`.
        """
        first, second = (torch.tensor(float(value), device=self.beta_device) for value in (alpha, beta))
        return torch.distributions.Beta(first, second).sample((count,)).to(device)

    def _drawn_on(self, device: torch.device | str) -> torch.device | str:
        return device if self.generator is None else self.generator.device


class ReplayDraws(Draws):
    """Returns recorded tensors in order instead of drawing.

    Args:
        recorded: (kind, tensor) pairs in call order; kind is one of `randn`, `rand`, `randn_like`, `beta`.

    Raises:
        DrawError: a call differs from the recording in kind or shape, or the recording is exhausted.
    """

    def __init__(self, recorded: Iterable[tuple[str, torch.Tensor]]) -> None:
        super().__init__()
        self.recorded = list(recorded)
        self.position = 0
        for index, (kind, _) in enumerate(self.recorded):
            if kind not in KINDS:
                raise DrawError(f"recorded draw {index} has the unknown kind {kind!r}; known kinds: {', '.join(KINDS)}")

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor], prefix: str = "") -> ReplayDraws:
        """Reads entries named `<prefix>draw.<number>.<kind>`, ordered by number; other entries are ignored."""
        start = f"{prefix}draw."
        found = []
        for name, tensor in tensors.items():
            if name.startswith(start):
                number, kind = name[len(start) :].split(".", 1)
                found.append((int(number), kind, tensor))
        if not found:
            raise DrawError(f"no recorded draws named {start}<number>.<kind>")
        return cls((kind, tensor) for _, kind, tensor in sorted(found, key=lambda entry: entry[0]))

    @property
    def remaining(self) -> int:
        """How many recorded tensors have not been used."""
        return len(self.recorded) - self.position

    def randn(
        self, shape: Sequence[int], *, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        return self._next("randn", shape).to(device=device, dtype=dtype)

    def rand(
        self, shape: Sequence[int], *, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        return self._next("rand", shape).to(device=device, dtype=dtype)

    def randn_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._next("randn_like", tensor.shape).to(device=tensor.device, dtype=tensor.dtype)

    def beta(self, alpha: float, beta: float, count: int, *, device: torch.device | str) -> torch.Tensor:
        return self._next("beta", (count,)).to(device)

    def _next(self, kind: str, shape: Sequence[int]) -> torch.Tensor:
        wanted = f"{kind}{tuple(shape)}"
        if not self.remaining:
            raise DrawError(f"the model asked for {wanted} but all {len(self.recorded)} recorded draws are used")
        recorded_kind, tensor = self.recorded[self.position]
        if recorded_kind != kind or tuple(tensor.shape) != tuple(shape):
            raise DrawError(
                f"draw {self.position}: the model asked for {wanted}, "
                f"recorded is {recorded_kind}{tuple(tensor.shape)}; "
                "the recording belongs to another configuration or batch size"
            )
        self.position += 1
        return tensor
