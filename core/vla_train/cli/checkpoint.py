"""`vla checkpoint`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vla_train.cli.common import (
    Subparsers,
    add_backend_argument,
    choose_backend,
    describe_launch,
    find_checkpoint,
    new_group,
    new_parser,
    run_config,
    say,
)

INSPECT = """\
  vla checkpoint inspect runs/demo
  vla checkpoint inspect runs/demo/checkpoints/step_00000100 --json"""
VERIFY = """\
  vla checkpoint verify runs/demo
  vla checkpoint verify runs/demo/checkpoints/step_00000100"""
EXPORT = """\
  vla checkpoint export --format dit4dit runs/demo exported/
  vla checkpoint export --format dit4dit runs/demo exported/ --checkpoint 2000"""

_WHERE = "folder of a run or of one checkpoint"


def add_parser(subparsers: Subparsers) -> None:
    commands = new_group(subparsers, "checkpoint", "Look at checkpoints and convert them.")

    summary = "List the checkpoints of a run, or look into one: step, strategy, size, and whether every file is intact."
    parser = new_parser(commands, "inspect", inspect, summary, INSPECT)
    parser.add_argument("path", metavar="RUN|CHECKPOINT", help=_WHERE)
    parser.add_argument("--quick", action="store_true", help="compare sizes only, not checksums")
    parser.add_argument("--json", action="store_true", help="for programs")

    summary = (
        "Read every file of a run's checkpoints, or of one, and say which are good and where the run would continue."
    )
    parser = new_parser(commands, "verify", verify, summary, VERIFY)
    parser.add_argument("path", metavar="RUN|CHECKPOINT", help=_WHERE)

    summary = "Write a checkpoint in the layout of the model's upstream project."
    parser = new_parser(commands, "export", export, summary, EXPORT)
    parser.add_argument("--format", required=True, metavar="NAME", help="name of the model whose upstream layout it is")
    parser.add_argument("run_folder", metavar="RUN", help="folder of the run")
    parser.add_argument("out", metavar="OUT", help="folder to write; must be empty or absent")
    parser.add_argument(
        "--checkpoint", default="latest", metavar="latest|STEP|FOLDER", help="which checkpoint (default: latest)"
    )
    add_backend_argument(parser)


def inspect(options: argparse.Namespace) -> int:
    """Print what the manifests say; 1 if a checkpoint is incomplete or damaged."""
    rows = [_look(folder, checksums=not options.quick) for folder in _folders(Path(options.path).expanduser())]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            state = "ok" if not row["problems"] else "; ".join(row["problems"])
            facts = ""
            if "step" in row:
                ranks = f"{row['world_size']} process{'es' * (row['world_size'] != 1)}"
                facts = f"step {row['step']}, {row['strategy']}, {ranks}, {row['size'] / 1e6:.1f} MB: "
            print(f"{row['path']}: {facts}{state}")
    return 1 if any(row["problems"] for row in rows) else 0


def verify(options: argparse.Namespace) -> int:
    """Check every byte against the manifests; 1 if anything is wrong, and then what a resume would take."""
    rows = [_look(folder, checksums=True) for folder in _folders(Path(options.path).expanduser())]
    for row in rows:
        if row["problems"]:
            print(f"{row['path']}: BAD")
            for problem in row["problems"]:
                print(f"  {problem}")
        else:
            print(f"{row['path']}: good, {len(row['files'])} files, {row['size'] / 1e6:.1f} MB")
    good = [row["path"] for row in rows if not row["problems"]]
    if len(good) < len(rows):
        print(f"the newest good one is {good[-1]}" if good else "none can be continued")
    return 0 if len(good) == len(rows) else 1


def _folders(path: Path) -> list[Path]:
    """Checkpoints of a run, oldest first, or the one that `path` is; a `ConfigError` if there are none."""
    from vla_train.checkpoint.layout import FOLDER, MANIFEST, saved_steps, step_name
    from vla_train.config import ConfigError
    from vla_train.config.files import nearest_path

    folders = [path / FOLDER / step_name(step) for step in reversed(saved_steps(path / FOLDER))]
    if not folders and (path / MANIFEST).is_file():
        folders = [path]
    if not folders:
        remedy = nearest_path(path) if not path.exists() else "give a run folder or a step_... folder"
        raise ConfigError(f"{path} holds no checkpoint.", fix=remedy)
    return folders


def _look(folder: Path, checksums: bool) -> dict[str, Any]:
    from vla_train.checkpoint.errors import CheckpointError
    from vla_train.checkpoint.manifest import Manifest

    try:
        manifest = Manifest.read(folder)
    except CheckpointError as error:
        return {"path": str(folder), "problems": [error.why or error.what]}
    problems = manifest.problems(folder, checksums=checksums)
    return {"path": str(folder), "size": manifest.size, **asdict(manifest), "problems": problems}


def export(options: argparse.Namespace) -> int:
    """Build the model in a child process, load the weights, and let the model write its upstream layout."""
    from vla_train import models
    from vla_train.config import ConfigError, load_config, save_config
    from vla_train.launch.plan import EXPORT as MODULE
    from vla_train.launch.plan import plan
    from vla_train.launch.supervise import supervise

    run_folder, out = Path(options.run_folder).expanduser(), Path(options.out).expanduser()
    config, sources = load_config([run_config(run_folder)])
    entry = models.find(config.model.name)
    if not entry.export_checkpoint:
        raise ConfigError(
            f"The model '{entry.name}' of {run_folder} has no upstream layout to export to.",
            fix="use the checkpoint as it is, or add `export_checkpoint` to the model's entry (docs/models.md)",
        )
    if options.format != entry.name:
        why = f"{run_folder} holds a model '{entry.name}', which writes: {entry.name}"
        raise ConfigError(
            f"The format '{options.format}' does not fit this run.", why=why, fix=f"--format {entry.name}"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder.", fix="name a new folder")
    checkpoint = find_checkpoint(run_folder, options.checkpoint)
    backend = choose_backend(options.backend, config)
    with tempfile.TemporaryDirectory(prefix="vla-export-") as folder:
        file = Path(folder) / "config.yaml"
        save_config(config, file)
        arguments = [str(file), "--run", str(run_folder), "--checkpoint", str(checkpoint), "--out", str(out)]
        launch = plan(MODULE, arguments, config, backend, os.environ, processes=1)
        say("run", f"{run_folder}, {checkpoint.name}")
        describe_launch(backend, sources, launch, [])
        return supervise(launch)
