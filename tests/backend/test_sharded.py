from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vla_backend import activate
from vla_backend.defaults.sharded import CheckpointError


class State:
    deepspeed = None

    def __init__(self, rank: int, world_size: int, tensors: dict[str, torch.Tensor]) -> None:
        self.rank, self.world_size, self._tensors = rank, world_size, tensors

    def tensors(self) -> dict[str, torch.Tensor]:
        return self._tensors

    def load_tensors(self, tensors) -> None:
        assert set(tensors) == set(self._tensors)
        for name, value in tensors.items():
            self._tensors[name].copy_(value)


@pytest.fixture
def backend():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


def some_tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {f"t{i}": torch.randn(i + 1, 3).to(torch.bfloat16 if i % 2 else torch.float32) for i in range(7)}


@pytest.mark.parametrize(("saved_by", "loaded_by"), [(1, 1), (2, 2), (3, 1), (2, 5)])
def test_round_trip_at_any_world_size(backend, tmp_path: Path, saved_by: int, loaded_by: int) -> None:
    tensors = some_tensors()
    written = [
        name for rank in range(saved_by) for name in backend.save_sharded(State(rank, saved_by, tensors), tmp_path)
    ]
    assert len(written) == len(set(written)) == saved_by
    from safetensors.torch import load_file

    held = [set(load_file(tmp_path / name)) for name in written]
    assert sum(map(len, held)) == len(tensors), "each tensor is written exactly once"
    for rank in range(loaded_by):
        state = State(rank, loaded_by, {name: torch.zeros_like(value) for name, value in tensors.items()})
        backend.load_sharded(state, tmp_path)
        assert all(torch.equal(state.tensors()[name], tensors[name]) for name in tensors)


def test_missing_shard_is_named(backend, tmp_path: Path) -> None:
    for rank in range(2):
        backend.save_sharded(State(rank, 2, some_tensors()), tmp_path)
    (tmp_path / "state-00001-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="1 of 2 shards"):
        backend.load_sharded(State(0, 1, some_tensors()), tmp_path)


def test_empty_folder(backend, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the checkpoint is incomplete"):
        backend.load_sharded(State(0, 1, some_tensors()), tmp_path)
