"""Sharded checkpoints without a gather: DeepSpeed's own files under ZeRO, otherwise one safetensors file per rank.

Either is loaded under any strategy by any number of ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vla_backend.defaults.zero_engine import fill_engine
from vla_backend.defaults.zero_files import weights_only, write_errors_last
from vla_backend.defaults.zero_layout import TAG, CheckpointError, plain_tensors, written_as, zero_tensors
from vla_backend.types import ShardedState

if TYPE_CHECKING:
    import torch


def save(state: ShardedState, directory: str) -> list[str]:
    """Write this rank's share; replicated tensors are dealt out by size, so each is written exactly once."""
    folder = Path(directory)
    if state.deepspeed is not None:
        before = {path for path in folder.rglob("*") if path.is_file()}
        with write_errors_last(state.deepspeed):
            state.deepspeed.save_checkpoint(str(folder), tag=TAG, save_latest=False)
        after = {path for path in folder.rglob("*") if path.is_file()}
        return sorted(path.relative_to(folder).as_posix() for path in after - before)
    from safetensors.torch import save_file

    tensors = state.tensors()
    mine = {
        name: tensors[name].detach().to("cpu").contiguous() for name in _share(tensors, state.rank, state.world_size)
    }
    name = _shard_name(state.rank, state.world_size)
    save_file(mine, str(folder / name))
    return [name]


def load(state: ShardedState, directory: str) -> None:
    """Fill `state`, whatever the strategy and the number of ranks at the time of saving.

    Raises:
        CheckpointError: files are missing, or do not fit the model.
    """
    folder = Path(directory)
    zero = (folder / TAG).is_dir()
    if state.deepspeed is None:
        found = zero_tensors(folder) if zero else plain_tensors(_shards(folder))
        state.load_tensors({name: stored.read() for name, stored in found.items()})
    elif zero and written_as(folder) == (int(state.deepspeed.zero_optimization_stage()), state.world_size):
        with weights_only():
            loaded, _ = state.deepspeed.load_checkpoint(str(folder), tag=TAG)
        if loaded is None:
            raise CheckpointError(f"DeepSpeed could not load {folder / TAG}.", fix="use an older checkpoint")
    else:
        found = zero_tensors(folder) if zero else plain_tensors(_shards(folder))
        fill_engine(state.deepspeed, found, state.rank, state.world_size)


def _shards(folder: Path) -> list[Path]:
    shards = sorted(folder.glob("state-*-of-*.safetensors"))
    if not shards:
        raise CheckpointError(
            f"{folder} holds neither state-*-of-*.safetensors nor a folder {TAG}.",
            why="the checkpoint is incomplete",
            fix="use an older checkpoint",
        )
    expected = int(shards[0].stem.split("-of-")[1])
    if len(shards) != expected:
        raise CheckpointError(
            f"{folder} holds {len(shards)} of {expected} shards.",
            why="the checkpoint is incomplete, or ranks wrote to folders of different machines",
            fix="copy the missing shards here or use an older checkpoint",
        )
    return shards


def _shard_name(rank: int, world_size: int) -> str:
    return f"state-{rank:05d}-of-{world_size:05d}.safetensors"


def _share(tensors: dict[str, torch.Tensor], rank: int, world_size: int) -> list[str]:
    """Names this rank writes: largest first to the rank with the least so far, the same plan on every rank."""
    load = [0] * world_size
    mine = []
    for name in sorted(tensors, key=lambda n: (-tensors[n].numel() * tensors[n].element_size(), n)):
        target = load.index(min(load))
        load[target] += tensors[name].numel() * tensors[name].element_size()
        if target == rank:
            mine.append(name)
    return mine
