"""`vla eval`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from vla_train.cli.common import (
    Subparsers,
    add_backend_argument,
    add_config_arguments,
    choose_backend,
    describe_launch,
    find_checkpoint,
    new_parser,
    run_config,
    say,
)

EXAMPLES = """\
  vla eval --run runs/demo
  vla eval --run runs/demo --checkpoint 2000 --backend cpu eval.episodes=2
  vla eval --config examples/demo.yaml"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Open-loop evaluation on held-out episodes: error per action dimension, plots, JSON."
    parser = new_parser(subparsers, "eval", run, summary, EXAMPLES)
    parser.add_argument("--run", dest="run_folder", metavar="FOLDER", help="folder of the run, instead of --config")
    parser.add_argument(
        "--checkpoint", default="latest", metavar="latest|STEP|FOLDER", help="which checkpoint (default: latest)"
    )
    add_backend_argument(parser)
    add_config_arguments(parser, required=False)


def run(options: argparse.Namespace) -> int:
    """Check, show, start, and stay until the evaluation has ended."""
    from vla_train.config import ConfigError, load_config, save_config
    from vla_train.launch import runs
    from vla_train.launch.plan import EVALUATION, plan
    from vla_train.launch.preflight import check_evaluation
    from vla_train.launch.supervise import supervise

    files = [*([run_config(Path(options.run_folder))] if options.run_folder else []), *options.config]
    if not files:
        raise ConfigError("vla eval needs a run.", fix="pass --run runs/NAME, or --config FILE of the run")
    config, sources = load_config(files, options.overrides, options.model)
    run_folder = Path(options.run_folder).expanduser() if options.run_folder else runs.folder(config)
    checkpoint = find_checkpoint(run_folder, options.checkpoint)
    backend = choose_backend(options.backend, config)
    warnings = check_evaluation(config, sources, backend, os.environ)
    with tempfile.TemporaryDirectory(prefix="vla-eval-") as folder:
        file = Path(folder) / "config.yaml"
        save_config(config, file)
        arguments = [str(file), "--run", str(run_folder), "--checkpoint", str(checkpoint)]
        launch = plan(EVALUATION, arguments, config, backend, os.environ, processes=1)
        say("run", f"{run_folder}, {checkpoint.name}")
        describe_launch(backend, sources, launch, warnings)
        return supervise(launch)
