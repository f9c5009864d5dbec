"""Weights of a run in the layout of the model's upstream project, `python -m vla_train.checkpoint.export`."""

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
from vla_train.launch.failure import guard
from vla_train.models import ModelEntry


def main(argv: list[str] | None = None) -> int:
    """Export one checkpoint and print the files written."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.checkpoint.export", description=__doc__)
    parser.add_argument("config", help="complete configuration of the run")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments = parser.parse_args(argv)
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    for path in export(config, entry, backend, arguments.run, arguments.checkpoint, arguments.out):
        print(f"wrote {path}")
    return 0


def export(config: Config, entry: ModelEntry, backend: Backend, run: Path, checkpoint: Path, out: Path) -> list[Path]:
    """Build the configured model on the host, load `checkpoint` into it and let the model write its upstream layout.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit, or the run has no dataset statistics.
    """
    statistics = run / "dataset_statistics.json"
    if not statistics.is_file():
        raise CheckpointError(
            f"{statistics} is missing.",
            why="upstream's loader needs the statistics to turn normalised actions into real ones",
            fix="copy the file from the machine that trained",
        )
    backend.load_stack()
    backend.local_device(0)
    from vla_train.checkpoint.weights import consolidated

    model = entry.call("build")(config, backend)
    # Under training the frozen modules are kept apart, and the checkpoint does not hold them.
    getattr(model, "detach_frozen", dict)()
    try:
        model.load_state_dict(consolidated(checkpoint))
    except RuntimeError as error:
        raise CheckpointError(
            f"{checkpoint} does not fit the model that {run / 'config.yaml'} describes.", why=str(error)
        ) from error
    facts = json.loads(statistics.read_text())
    step = Manifest.read(checkpoint).step
    written: list[Path] = entry.call("export_checkpoint")(model, run, out, facts, step=step)
    return written


if __name__ == "__main__":
    sys.exit(guard(main))
