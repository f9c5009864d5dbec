"""Full weights out of a sharded checkpoint, without a process group."""

from __future__ import annotations

from pathlib import Path

import torch

from vla_backend.defaults.zero_layout import zero_weights
from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.manifest import Manifest
from vla_train.checkpoint.state import MODEL


def consolidated(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Weights by state dict name, float32 for what ZeRO trained; frozen networks kept apart are not among them.

    Args:
        checkpoint: a checkpoint folder, written under any strategy.

    Raises:
        CheckpointError: it is incomplete or damaged.
    """
    manifest = Manifest.read(checkpoint)
    problems = manifest.problems(checkpoint)
    if problems:
        raise CheckpointError(f"{checkpoint} is damaged.", why="; ".join(problems), fix="use an older checkpoint")
    return _from_zero(checkpoint) if manifest.strategy.startswith("zero") else _from_shards(checkpoint)


def _from_shards(checkpoint: Path) -> dict[str, torch.Tensor]:
    from safetensors import safe_open

    weights = {}
    for shard in sorted(checkpoint.glob("state-*-of-*.safetensors")):
        with safe_open(str(shard), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                if name.startswith(MODEL):
                    weights[name.removeprefix(MODEL)] = file.get_tensor(name)
    return weights


def _from_zero(checkpoint: Path) -> dict[str, torch.Tensor]:
    try:
        return {name: stored.read().detach() for name, stored in zero_weights(checkpoint).items()}
    except ImportError as error:
        raise CheckpointError(
            f"{checkpoint} was written by DeepSpeed, which is not installed.",
            why=str(error),
            fix="`pip install deepspeed` (Linux), or export on the machine that trained",
        ) from error
