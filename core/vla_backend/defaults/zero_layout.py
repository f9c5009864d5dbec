"""Reading DeepSpeed's checkpoint files as whole tensors, whatever the number of ranks that wrote them.

Tensors have the names of the layout without ZeRO: `model.<state dict name>` and `optimizer.<parameter name>.<entry>`.
Each is read when it is asked for, and the files are memory-mapped, so that a rank need not hold the whole checkpoint.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vla_backend.defaults.zero_files import weights_only
from vla_backend.errors import BackendError

if TYPE_CHECKING:
    import torch

TAG: Final = "zero"
MODEL, OPTIMIZER = "model.", "optimizer."


class CheckpointError(BackendError):
    """A sharded checkpoint cannot be read back."""


@dataclass(frozen=True)
class Stored:
    """A whole tensor of a checkpoint that `read` reads."""

    shape: tuple[int, ...]
    read: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class _Piece:
    """Part of a parameter in a flat group of one rank, in values."""

    rank: int
    group: int
    start: int
    length: int


def written_as(folder: Path) -> tuple[int, int]:
    """Stage of ZeRO and number of ranks of DeepSpeed's files in a checkpoint folder."""
    stage = 3 if (folder / TAG / "zero_pp_rank_0_mp_rank_00_model_states.pt").is_file() else 2
    return stage, len(_optimizer_files(folder))


def plain_tensors(shards: Sequence[Path]) -> dict[str, Stored]:
    """What safetensors shards hold, by name."""
    from safetensors import safe_open

    found = {}
    for shard in shards:
        file: Any = safe_open(str(shard), framework="pt")
        for name in file.keys():  # noqa: SIM118
            found[name] = Stored(tuple(file.get_slice(name).get_shape()), partial(file.get_tensor, name))
    return found


def zero_weights(folder: Path) -> dict[str, Stored]:
    """Weights by state dict name: float32 masters of what was trained, frozen parameters and buffers."""
    from deepspeed.utils import zero_to_fp32

    # It reports every file on the standard output, its progress on the other.
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), weights_only():
        lazy = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=TAG, lazy_mode=True)
    return {name: Stored(tuple(tensor.shape), tensor.contiguous) for name, tensor in lazy.items()}


def zero_tensors(folder: Path) -> dict[str, Stored]:
    """Weights and optimizer states by name.

    Raises:
        CheckpointError: optimizer states in a layout that is not known here.
    """
    import torch

    found = {MODEL + name: stored for name, stored in zero_weights(folder).items()}
    with weights_only():
        files = [torch.load(file, map_location="cpu", mmap=True) for file in _optimizer_files(folder)]
        # Shapes are the same in the files of all ranks.
        shapes = torch.load(min((folder / TAG).glob("*_model_states.pt")), map_location="cpu", mmap=True)[
            "param_shapes"
        ]
    ranks = [file["optimizer_state_dict"] for file in files]
    if written_as(folder)[0] == 3:
        states = [_by_group(rank["optimizer_state_dict"]) for rank in ranks]
        places = _stage3_places(shapes, [flat.numel() for flat in ranks[0]["fp32_flat_groups"]], len(ranks))
    else:
        states = [_by_group(rank["base_optimizer_state"]) for rank in ranks]
        places = _stage2_places([rank["param_slice_mappings"] for rank in ranks])
    whole = {name: shape for members in shapes for name, shape in members.items()}
    for name, pieces in places.items():
        for entry, value in states[pieces[0].rank].get(pieces[0].group, {}).items():
            # Counters have no dimension, states per weight are as flat as the group.
            stored = Stored(tuple(whole[name]), partial(_joined, states, pieces, entry, whole[name]))
            found[f"{OPTIMIZER}{name}.{entry}"] = stored if value.dim() else Stored((), value.clone)
    return found


def _optimizer_files(folder: Path) -> list[Path]:
    """One per rank, in the order of ranks."""
    found = (folder / TAG).glob("*_optim_states.pt")
    return sorted(found, key=lambda path: int(path.name.partition("zero_pp_rank_")[2].partition("_")[0]))


def _stage2_places(mappings: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[_Piece]]:
    """Parameters lie end to end and are cut among ranks anywhere; DeepSpeed writes the places down."""
    places: dict[str, list[_Piece]] = {}
    for rank, groups in enumerate(mappings):
        for group, members in enumerate(groups):
            for name, address in members.items():
                places.setdefault(name, []).append(_Piece(rank, group, address.start, address.numel))
    return places


def _stage3_places(shapes: Sequence[Mapping[str, Any]], sizes: Sequence[int], ranks: int) -> dict[str, list[_Piece]]:
    """Every rank holds an equal share, rounded up, of every parameter; shares lie end to end in the rank's groups."""
    places = {}
    group = start = 0
    for name, shape in ((name, shape) for members in shapes for name, shape in members.items()):
        share = math.ceil(shape.numel() / ranks)
        while start >= sizes[group]:
            group, start = group + 1, 0
        if start + share > sizes[group]:
            raise CheckpointError(f"DeepSpeed cut '{name}' between two groups.", why="this layout is not known here")
        places[name] = [_Piece(rank, group, start, share) for rank in range(ranks)]
        start += share
    return places


def _by_group(state: Any) -> dict[int, dict[str, torch.Tensor]]:
    """The optimizer state of each flat group of one rank."""
    import torch

    if not isinstance(state, Mapping):
        raise CheckpointError(
            "These optimizer states can be continued only as they were written.",
            why="parallel.deepspeed.zero_optimization.elastic_checkpoint was true",
            fix="use the strategy and number of processes of the original run",
        )
    groups = state["state"].items()
    return {group: {entry: torch.as_tensor(value) for entry, value in entries.items()} for group, entries in groups}


def _joined(
    states: Sequence[Mapping[int, Mapping[str, torch.Tensor]]], pieces: Sequence[_Piece], entry: str, shape: torch.Size
) -> torch.Tensor:
    import torch

    parts = [states[p.rank][p.group][entry].narrow(0, p.start, p.length) for p in pieces]
    return torch.cat(parts)[: shape.numel()].view(shape)
