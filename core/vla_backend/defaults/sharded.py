"""Sharded checkpoints without a gather: DeepSpeed's own files under ZeRO, otherwise one safetensors file per rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from vla_backend.defaults.zero_files import weights_only, write_errors_last
from vla_backend.errors import BackendError
from vla_backend.types import ShardedState

if TYPE_CHECKING:
    import torch

_DEEPSPEED_TAG: Final = "zero"


class CheckpointError(BackendError):
    """A sharded checkpoint cannot be read back."""


def save(state: ShardedState, directory: str) -> list[str]:
    """Write this rank's share; replicated tensors are dealt out by size, so each is written exactly once."""
    folder = Path(directory)
    if state.deepspeed is not None:
        before = {path for path in folder.rglob("*") if path.is_file()}
        with write_errors_last(state.deepspeed):
            state.deepspeed.save_checkpoint(str(folder), tag=_DEEPSPEED_TAG, save_latest=False)
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
    """Fill `state`; another number of ranks than at the time of saving is fine without ZeRO.

    Raises:
        CheckpointError: files are missing, or were written under ZeRO by another number of ranks.
    """
    folder = Path(directory)
    if state.deepspeed is not None:
        if not (folder / _DEEPSPEED_TAG).is_dir():
            raise CheckpointError(
                f"No ZeRO checkpoint in {folder}.",
                why="this run uses ZeRO, the checkpoint was written without it",
                fix="resume with the strategy of the original run (`parallel.strategy`) or start from exported weights",
            )
        with weights_only():
            loaded, _ = state.deepspeed.load_checkpoint(str(folder), tag=_DEEPSPEED_TAG)
        if loaded is None:
            raise CheckpointError(f"DeepSpeed could not load {folder / _DEEPSPEED_TAG}.", fix="use an older checkpoint")
        return
    from safetensors.torch import load_file

    shards = sorted(folder.glob("state-*-of-*.safetensors"))
    if not shards:
        raise CheckpointError(
            f"No state-*-of-*.safetensors in {folder}.",
            why="the checkpoint was written under ZeRO, or is incomplete",
            fix="resume with the strategy of the original run (`parallel.strategy`)",
        )
    expected = int(shards[0].stem.split("-of-")[1])
    if len(shards) != expected:
        raise CheckpointError(
            f"{folder} holds {len(shards)} of {expected} shards.",
            why="the checkpoint is incomplete, or ranks wrote to folders of different machines",
            fix="copy the missing shards here or use an older checkpoint",
        )
    tensors: dict[str, torch.Tensor] = {}
    for shard in shards:
        tensors.update(load_file(str(shard)))
    state.load_tensors(tensors)


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
