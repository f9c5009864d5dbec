"""Recording a model's random numbers and replaying them, so that two backends compute the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from vla_train.nn.draws import Draws, ReplayDraws


class RecordingDraws(Draws):
    """Draws as `inner` does and keeps a copy of everything on the host, in order."""

    def __init__(self, inner: Draws) -> None:
        super().__init__(inner.generator, inner.beta_device)
        self.inner = inner
        self.recorded: list[tuple[str, torch.Tensor]] = []

    def randn(
        self, shape: Sequence[int], *, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        return self._kept("randn", self.inner.randn(shape, device=device, dtype=dtype))

    def rand(
        self, shape: Sequence[int], *, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        return self._kept("rand", self.inner.rand(shape, device=device, dtype=dtype))

    def randn_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._kept("randn_like", self.inner.randn_like(tensor))

    def beta(self, alpha: float, beta: float, count: int, *, device: torch.device | str) -> torch.Tensor:
        return self._kept("beta", self.inner.beta(alpha, beta, count, device=device))

    def tensors(self) -> dict[str, torch.Tensor]:
        """The recording as `ReplayDraws.from_tensors` reads it, for `safetensors.torch.save_file`."""
        return {f"draw.{number}.{kind}": tensor for number, (kind, tensor) in enumerate(self.recorded)}

    def _kept(self, kind: str, drawn: torch.Tensor) -> torch.Tensor:
        self.recorded.append((kind, drawn.detach().to("cpu", copy=True)))
        return drawn


class RecordedDraws:
    """Puts recording or replaying draws into a model whose attribute `draws` is a `vla_train.nn.Draws`."""

    def __init__(self) -> None:
        self._replayed: list[ReplayDraws] = []

    def record(self, model: nn.Module) -> RecordingDraws:
        """Record from now on; answers the recording, which grows with every draw."""
        recording = RecordingDraws(_draws(model))
        model.draws = recording  # type: ignore[assignment]
        return recording

    def replay(self, model: nn.Module, recording: RecordingDraws | Mapping[str, torch.Tensor] | Path) -> None:
        """Give `model` the recorded tensors in order instead of new ones.

        Args:
            model: of the same configuration; on any backend.
            recording: what `record` answered, its tensors by name, or a safetensors file of them.

        Raises:
            DrawError: then or later, where the model asks for something else than was recorded.
        """
        if isinstance(recording, Path):
            from safetensors.torch import load_file

            recording = load_file(str(recording))
        tensors = recording.tensors() if isinstance(recording, RecordingDraws) else recording
        _draws(model)
        replay = ReplayDraws.from_tensors(tensors)
        model.draws = replay  # type: ignore[assignment]
        self._replayed.append(replay)

    def check_used_up(self) -> None:
        """Fail if a replayed recording holds draws that nobody asked for."""
        for replay in self._replayed:
            assert not replay.remaining, (
                f"{replay.remaining} of {len(replay.recorded)} recorded draws were not used: "
                "the model draws less than the recording"
            )


def _draws(model: nn.Module) -> Draws:
    draws = getattr(model, "draws", None)
    if not isinstance(draws, Draws):
        raise TypeError(
            f"{type(model).__name__} has no attribute 'draws' of type vla_train.nn.Draws, the single source of a "
            "model's random numbers"
        )
    return draws
