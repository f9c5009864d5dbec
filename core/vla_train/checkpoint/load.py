"""A model with the weights of a checkpoint, for evaluation, serving and export."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vla_backend import Backend
from vla_train.checkpoint.state import load_weights
from vla_train.checkpoint.weights import consolidated
from vla_train.config.schema import Config
from vla_train.models import ModelEntry
from vla_train.train.setup import build_model


def load_model(config: Config, entry: ModelEntry, backend: Backend, checkpoint: Path) -> nn.Module:
    """Build the model of a run and load a checkpoint written under any strategy, in one process.

    Networks that were frozen during the run are not in its checkpoints. They come from where the run had them from:
    the model's own files and `train.pretrained_checkpoint`. They are placed; the rest is on the CPU.

    Args:
        config: of the run.
        backend: device-ready.

    Raises:
        CheckpointError: the checkpoint is incomplete, damaged, or does not fit the model.
    """
    model = build_model(config, entry, backend, {})
    load_weights(model, consolidated(checkpoint))
    return model
