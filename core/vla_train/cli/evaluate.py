"""`vla eval`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from vla_train.cli.common import (
    Subparsers,
    add_backend_argument,
    add_config_arguments,
    at_least,
    choose_backend,
    describe_launch,
    find_checkpoint,
    new_parser,
    run_config,
    say,
)

EXAMPLES = """\
  vla eval --run runs/demo
  vla eval --run runs/demo --split train                       # every episode that was trained on; or: all
  vla eval --run runs/demo --checkpoint 2000 --backend cpu --episodes 2
  vla eval --config examples/demo.yaml
  vla eval --run runs/demo --env metaworld:button-press-topdown-v3 --episodes 20
  vla eval --run runs/demo --env metaworld:drawer-open-v3 --execute 4 --env-option camera=corner"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Evaluate a run: open loop against recorded actions, or with --env in closed loop in a simulator."
    parser = new_parser(subparsers, "eval", run, summary, EXAMPLES)
    parser.add_argument("--run", dest="run_folder", metavar="FOLDER", help="folder of the run, instead of --config")
    parser.add_argument(
        "--checkpoint", default="latest", metavar="latest|STEP|FOLDER", help="which checkpoint (default: latest)"
    )
    parser.add_argument(
        "--episodes",
        type=at_least(0),
        metavar="N",
        help="eval.episodes; the default is all recorded ones, 20 with --env",
    )
    parser.add_argument(
        "--split",
        choices=("eval", "train", "all"),
        help="open loop: the held-out episodes (default), those that were trained on, or all",
    )
    closed = parser.add_argument_group("closed loop")
    closed.add_argument("--env", metavar="NAME:TASK", help="environment, e.g. metaworld:button-press-topdown-v3")
    closed.add_argument(
        "--env-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="instead of what the training set's meta/recording.json says; may be given several times",
    )
    closed.add_argument(
        "--first-seed", type=at_least(0), metavar="N", help="of the first episode, the others count on (default: 0)"
    )
    closed.add_argument(
        "--execute", type=at_least(0), metavar="N", help="steps of a prediction to apply before the next (default: all)"
    )
    closed.add_argument("--no-videos", action="store_true", help="write no video of every episode")
    add_backend_argument(parser)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Check, show, start, and stay until the evaluation has ended."""
    from vla_train.config import ConfigError, load_config, save_config
    from vla_train.launch import runs
    from vla_train.launch.plan import CLOSED_LOOP, EVALUATION, plan
    from vla_train.launch.preflight import check_evaluation
    from vla_train.launch.supervise import supervise

    files = [*([run_config(Path(options.run_folder))] if options.run_folder else []), *options.config]
    if not files:
        raise ConfigError("vla eval needs a run.", fix="pass --run runs/NAME, or --config FILE of the run")
    module, extra = (CLOSED_LOOP, _closed_loop(options)) if options.env else (EVALUATION, _open_loop(options))
    overrides = list(options.overrides)
    if options.episodes is not None:
        overrides.append(f"eval.episodes={options.episodes}")
    config, sources = load_config(files, overrides, options.model)
    run_folder = Path(options.run_folder).expanduser() if options.run_folder else runs.folder(config)
    checkpoint = find_checkpoint(run_folder, options.checkpoint)
    backend = choose_backend(options.backend, config)
    warnings = check_evaluation(config, sources, backend, os.environ)
    with tempfile.TemporaryDirectory(prefix="vla-eval-") as folder:
        file = Path(folder) / "config.yaml"
        save_config(config, file)
        arguments = [str(file), "--run", str(run_folder), "--checkpoint", str(checkpoint), *extra]
        launch = plan(module, arguments, config, backend, os.environ, processes=1)
        say("run", f"{run_folder}, {checkpoint.name}")
        describe_launch(backend, sources, launch, warnings)
        return supervise(launch)


def _open_loop(options: argparse.Namespace) -> list[str]:
    from vla_train.config import ConfigError

    given = [name for name in ("env_option", "first_seed", "execute", "no_videos") if getattr(options, name)]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{names} needs --env.", fix="name the environment, e.g. --env metaworld:push-v3")
    return ["--split", options.split or "eval"]


def _closed_loop(options: argparse.Namespace) -> list[str]:
    from vla_train.closed_loop.environments import find
    from vla_train.config import ConfigError

    if options.split:
        raise ConfigError("--split is for recorded episodes.", why="--env plays new ones", fix="leave one of them out")
    # An unknown name is said before anything is started; what is not installed the worker says, which imports it.
    find(options.env)
    arguments = ["--env", options.env, "--env-options", json.dumps(_env_options(options.env_option))]
    arguments += ["--first-seed", str(options.first_seed or 0), "--execute", str(options.execute or 0)]
    return [*arguments, *(["--no-videos"] if options.no_videos else [])]


def _env_options(given: list[str]) -> dict[str, Any]:
    from vla_train.config import ConfigError

    options: dict[str, Any] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise ConfigError(f"'{text}' is no option of an environment.", fix="write --env-option KEY=VALUE")
        try:
            options[key] = json.loads(value)
        except ValueError:  # a word needs no quotes
            options[key] = value
    return options
