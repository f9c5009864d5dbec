"""What several sub-commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vla_backend import Backend
    from vla_train.config import Config, Sources
    from vla_train.launch.plan import Plan

Subparsers = Any


def new_parser(
    subparsers: Subparsers, name: str, run: Callable[[argparse.Namespace], int], summary: str, examples: str
) -> argparse.ArgumentParser:
    """A sub-command with its examples under its help."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def new_group(subparsers: Subparsers, name: str, summary: str) -> Subparsers:
    """A command that has commands of its own; answers where they are added."""
    parent = subparsers.add_parser(
        name, help=summary, description=summary, epilog=f"`vla {name} COMMAND --help` shows examples."
    )
    return parent.add_subparsers(metavar="COMMAND", required=True)


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """`--config`, `--model` and free overrides."""
    parser.add_argument(
        "--config",
        "--config_yaml",
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file; may be given several times, a later one wins. The upstream project's own files work too",
    )
    parser.add_argument("--model", metavar="NAME", help="model to use (sets model.name)")
    parser.set_defaults(takes_overrides=True)
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').rstrip()} [key=value ...] [--key value ...]"


def at_least(least: int) -> Callable[[str], int]:
    """Type of an option that takes whole numbers from `least` on."""

    def read(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number of at least {least}")
        return int(text)

    return read


def add_backend_argument(parser: argparse.ArgumentParser) -> None:
    """`--backend`."""
    parser.add_argument("--backend", metavar="NAME", help="see `vla backends`; wins over VLA_BACKEND and the config")


def choose_backend(flag: str | None, config: Config) -> Backend:
    """The backend of this run, able to run here; an explicit choice that cannot is an error."""
    from vla_backend import activate, choose

    return activate(choose(flag, config=config.backend))


def say(label: str, text: str) -> None:
    """One line of the summary before a launch."""
    print(f"{label:<12}{text}", flush=True)


def describe_launch(backend: Backend, sources: Sources, plan: Plan, warnings: list[str]) -> None:
    """Say what was chosen and why, what is added to the environment, and what the user should know."""
    candidate = backend.candidate
    origin = f"{candidate.distribution} {candidate.version}"
    reason = backend.probe().reason
    evidence = "" if reason in candidate.why else f"; {reason}"
    say("backend", f"{backend.name} ({origin}), {candidate.why}{evidence}")
    added = " ".join(f"{name}={value}" for name, value in sorted(plan.added.items()))
    say("environment", added or "nothing added")
    if plan.removed:
        say("", f"not passed on: {' '.join(plan.removed)}")
    for note in sources.notes:
        say("note", note)
    for warning in warnings:
        say("warning", warning)


def run_config(run_folder: Path) -> Path:
    """The complete configuration of a run; a `ConfigError` if the folder is none."""
    from vla_train.config import ConfigError
    from vla_train.config.files import nearest_path

    path = run_folder.expanduser() / "config.yaml"
    if not path.is_file():
        there = run_folder.expanduser().is_dir()
        remedy = "a run folder holds config.yaml and checkpoints/" if there else nearest_path(path.parent)
        raise ConfigError(f"{run_folder} is no run folder.", fix=remedy)
    return path


def find_checkpoint(run_folder: Path, which: str) -> Path:
    """The complete checkpoint `which` ("latest", a step or a folder); a `ConfigError` that lists what is there."""
    from vla_train.config import ConfigError
    from vla_train.launch import runs

    found = runs.checkpoint(run_folder, which)
    if found is None:
        there = ", ".join(path.name for path in runs.complete_checkpoints(run_folder)) or "none"
        raise ConfigError(
            f"{run_folder} has no complete checkpoint '{which}'.",
            why=f"complete checkpoints there: {there}",
            fix="`vla checkpoint inspect` says what is wrong with the others",
        )
    return found
