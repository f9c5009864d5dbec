"""Full weights out of a sharded checkpoint, without a process group."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, Final

import torch

from vla_backend.defaults.zero_files import weights_only
from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.manifest import Manifest
from vla_train.checkpoint.state import MODEL

# Where the backends' default `save_sharded` lets DeepSpeed write.
ZERO_TAG: Final = "zero"


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
        from deepspeed.utils import zero_to_fp32
    except ImportError as error:
        raise CheckpointError(
            f"{checkpoint} was written by DeepSpeed, which is not installed.",
            why=str(error),
            fix="`pip install deepspeed` (Linux), or export on the machine that trained",
        ) from error
    # It reports every file on the standard output.
    with contextlib.redirect_stdout(io.StringIO()), weights_only():
        state: dict[str, Any] = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(checkpoint), tag=ZERO_TAG)
    return {name: tensor.detach() for name, tensor in state.items()}
