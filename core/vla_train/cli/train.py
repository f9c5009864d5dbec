"""`vla train`."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from pathlib import Path

from vla_backend.discovery import ENV as BACKEND_ENV
from vla_train.cli.common import (
    Subparsers,
    add_backend_argument,
    add_config_arguments,
    at_least,
    choose_backend,
    describe_launch,
    new_parser,
    say,
)
from vla_train.cli.sim import add_simulate_arguments, again

EXAMPLES = """\
  vla train --backend cpu --config examples/demo.yaml
  vla train --config dit4dit_libero.yaml --processes 8 --zero 2 data.root=/data run.id=libero
  vla train --config my.yaml train.max_steps=1000 train.learning_rate.base=1e-5 'train.freeze=[backbone]'
  vla train --config upstream.yaml --trainer.max_train_steps 1000
  vla train --model groot --base-model DIR --dataset DIR --embodiment-tag libero_sim
  vla train --config my.yaml --dry-run
  vla train --backend ascend --simulate 2 --processes 2 --config examples/demo.yaml"""


def add_parser(subparsers: Subparsers) -> None:
    parser = new_parser(subparsers, "train", run, "Train a model; continues a run that is there already.", EXAMPLES)
    add_backend_argument(parser)
    parser.add_argument("--processes", type=at_least(1), metavar="N", help="one per device (sets parallel.processes)")
    parser.add_argument("--zero", choices=["2", "3"], help="DeepSpeed ZeRO stage (sets parallel.strategy)")
    parser.add_argument(
        "--resume", metavar="auto|never|FOLDER", help="continue, start afresh, or a checkpoint (sets train.resume)"
    )
    parser.add_argument(
        "--dist-timeout",
        type=at_least(1),
        metavar="SECONDS",
        help="until a collective that does not finish ends the job; sets every timeout (parallel.dist_timeout)",
    )
    parser.add_argument(
        "--performance",
        type=at_least(1),
        nargs="?",
        const=20,
        metavar="STEPS",
        help="measure samples per second per device over so many steps (20) after a warm-up; no checkpoints",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, show what would start, and stop")
    add_simulate_arguments(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Check, show, start, and stay until the last process has ended."""
    from vla_train.config import ConfigError, load_config
    from vla_train.launch import runs
    from vla_train.launch.claim import claimed
    from vla_train.launch.plan import PERFORMANCE, WORKER, plan
    from vla_train.launch.preflight import check_training
    from vla_train.launch.supervise import supervise
    from vla_train.ledger import launch_ledger, write_launch
    from vla_train.performance import without_checkpoints

    if not options.config and not options.model:
        raise ConfigError("Nothing says what to train.", fix="give --config FILE, or --model NAME and its options")
    config, sources = load_config(options.config, [*options.overrides, *_flags(options)], options.model)
    if options.simulate is not None:
        name = options.backend or os.environ.get(BACKEND_ENV) or config.backend
        return again(name, options.simulate or config.parallel.processes, options.simulate_options, options.arguments)
    backend = choose_backend(options.backend, config)
    if options.performance is not None:
        without_checkpoints(config, options.performance)
    warnings = check_training(config, sources, backend, os.environ)
    run_folder = runs.folder(config)
    file = runs.config_file(config)
    module, arguments = WORKER, [str(file)]
    if options.performance is not None:
        module, arguments = PERFORMANCE, [str(file), str(options.performance)]
    launch = plan(module, arguments, config, backend, os.environ, config.parallel.processes)

    say("run", f"{run_folder}, {runs.start(config)}")
    parallel = config.parallel
    count = f"{parallel.processes} process{'es' * (parallel.processes > 1)}"
    say("model", f"{config.model.name}, {count}, {parallel.strategy}, {parallel.mixed_precision}")
    describe_launch(backend, sources, launch, warnings)
    for change in runs.differences(config):
        say("warning", f"differs from the run that is continued: {change}")
    if options.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            say("command", shlex.join(launch.command(Path(folder))))
        say("", "dry run: nothing was started or written")
        return 0
    run_folder.mkdir(parents=True, exist_ok=True)
    with claimed(run_folder) as unlocked:
        if unlocked:
            say("warning", unlocked)
        runs.write_config(config, file)
        write_launch(run_folder, launch_ledger(backend, config, sources, launch, os.environ))
        return supervise(launch)


def _flags(options: argparse.Namespace) -> list[str]:
    flags = {
        "parallel.processes": options.processes,
        "parallel.strategy": f"zero{options.zero}" if options.zero else None,
        "parallel.dist_timeout": options.dist_timeout,
        "train.resume": options.resume,
    }
    return [f"{key}={value}" for key, value in flags.items() if value is not None]
