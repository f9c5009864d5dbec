"""`vla doctor`."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING

from vla_train.cli.common import Subparsers, add_backend_argument, add_config_arguments, at_least, new_parser

if TYPE_CHECKING:
    from vla_backend import Candidate

EXAMPLES = """\
  vla doctor
  vla doctor --backend ascend --processes 8
  vla doctor --config my.yaml --json train.compile=true"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Check this machine, in under a minute: versions, libraries, devices, and a small step of everything."
    parser = new_parser(subparsers, "doctor", run, summary, EXAMPLES)
    add_backend_argument(parser)
    parser.add_argument(
        "--processes", type=at_least(1), metavar="N", help="ranks on this machine (sets parallel.processes)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line per check; 0 if nothing failed, else 1."""
    from vla_backend import activate
    from vla_backend.health import Check
    from vla_train.config import ConfigError, load_config
    from vla_train.doctor import report
    from vla_train.doctor.examine import Job, examine

    started = time.monotonic()
    if options.overrides and not (options.config or options.model):
        raise ConfigError(f"Nothing says what to set {' '.join(options.overrides)} in.", fix="give --config FILE")
    overrides = [*options.overrides, *([f"parallel.processes={options.processes}"] if options.processes else [])]
    config = load_config(options.config, overrides, options.model)[0] if options.config or options.model else None
    backend = activate(_candidate(options.backend, config.backend if config else None), check_available=False)
    arguments = [part for path in options.config for part in ("--config", path)]
    arguments += ["--model", options.model] if options.model else []
    arguments += ["--backend", backend.name, *overrides]
    processes = config.parallel.processes if config else options.processes or 1
    checks: list[Check] = []
    for check in examine(Job(backend, config, arguments, processes, dict(os.environ))):
        checks.append(check)
        if not options.json:
            print(report.line(check), flush=True)
    seconds = time.monotonic() - started
    print(report.as_json(backend.name, checks, seconds) if options.json else report.summary(checks, seconds))
    return 0 if report.passed(checks) else 1


def _candidate(flag: str | None, configured: str | None) -> Candidate:
    """The backend asked for; without one the automatic choice, or the CPU where no backend is able, to say why."""
    from vla_backend import candidates, choose
    from vla_backend.errors import BackendUnavailable

    try:
        return choose(flag, config=configured)
    except BackendUnavailable:
        installed = candidates()
        return installed.get("cpu") or next(iter(installed.values()))
