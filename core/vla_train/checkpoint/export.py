"""Writing a checkpoint in the layout of the model's upstream project.

`python -m vla_train.checkpoint.export CONFIG.yaml --run FOLDER --checkpoint FOLDER --out FOLDER`
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from vla_backend import Backend, activate, choose
from vla_train import models
from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.manifest import Manifest
from vla_train.config import Config, load_config
from vla_train.launch.failure import guard, of_a_file, of_the_disk
from vla_train.models import ModelEntry
from vla_train.worker import translated


def main(argv: list[str] | None = None) -> int:
    """Export and print the files written."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.checkpoint.export", description=__doc__)
    parser.add_argument("config", help="configuration of the run")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse_args(argv)
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    try:
        backend.load_stack()
        backend.local_device(0)
        files = export(config, entry, backend, arguments.run, arguments.checkpoint, arguments.out)
    except Exception as error:
        if isinstance(error, OSError) and of_the_disk(error, arguments.out) is not None:
            raise of_a_file(error) from error
        raise translated(error, backend) from error
    for file in files:
        print(f"  wrote {file}")
    return 0


def export(config: Config, entry: ModelEntry, backend: Backend, run: Path, checkpoint: Path, out: Path) -> list[Path]:
    """Write the weights of `checkpoint`, plain or sharded, through the model's `export_checkpoint`; the files written.

    Raises:
        CheckpointError: the model has no such layout, the run has no statistics, or the checkpoint is not good.
    """
    # Torch, which these import, may be loaded only after the backend's stack.
    from vla_train.checkpoint.load import load_model
    from vla_train.train.setup import STATISTICS

    if not entry.export_checkpoint:
        raise CheckpointError(f"The model '{entry.name}' has no upstream layout to export to.")
    facts = run / STATISTICS
    if not facts.is_file():
        raise CheckpointError(
            f"{facts} is missing.",
            why="without the statistics of the actions nobody can use the model",
            fix="copy it from the run that trained the model",
        )
    model = load_model(config, entry, backend, checkpoint)
    step = Manifest.read(checkpoint).step
    files = entry.call("export_checkpoint")(model, run, out, json.loads(facts.read_text()), step=step)
    return [Path(file) for file in files]


if __name__ == "__main__":
    sys.exit(guard(main))
