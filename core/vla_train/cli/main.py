"""Entry point of `vla`: finds the sub-command and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import metadata

from vla_backend.errors import BackendError
from vla_train.cli import (
    backends,
    checkpoint,
    config,
    data,
    doctor,
    estimate,
    evaluate,
    explain,
    plugin,
    serve,
    setup,
    sim,
    train,
)
from vla_train.cli.parser import Parser
from vla_train.launch.failure import DEBUG_ENV, INTERRUPTED, MISTAKE, of_a_file, of_the_disk
from vla_train.launch.missing import missing_package

COMMANDS = (train, evaluate, serve, data, backends, config, explain, checkpoint, plugin, sim, doctor, estimate, setup)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one `vla` command and answer its exit code: 0, 2 for a mistake of the user, 130 for Ctrl-C."""
    options, rest = build_parser().parse_known_args(arguments)
    try:
        if rest and not getattr(options, "takes_overrides", False):
            options.parser.unknown(rest)
        options.overrides = rest
        options.arguments = list(sys.argv[1:] if arguments is None else arguments)
        code: int = options.run(options)
        return code
    except BackendError as error:
        if os.environ.get(DEBUG_ENV):
            raise
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # `vla config show | head`: nobody reads on. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None or os.environ.get(DEBUG_ENV):
            raise
        print(f"error: {missing}", file=sys.stderr)
        return MISTAKE
    except OSError as error:
        if os.environ.get(DEBUG_ENV) or not (error.filename or error.errno):
            raise
        of_a_run = of_the_disk(error, "the run's folder") if options.run is train.run else None
        print(f"error: {of_a_run or of_a_file(error)}", file=sys.stderr)
        return MISTAKE


def build_parser() -> argparse.ArgumentParser:
    """The parser of every sub-command; each module in `COMMANDS` adds its own."""
    parser = Parser(
        prog="vla",
        description="Train and evaluate vision-language-action models on any chip.",
        epilog="Errors are one message; VLA_DEBUG=1 adds the traceback. `vla COMMAND --help` shows examples.",
    )
    parser.add_argument("--version", action="version", version=f"vla-backend {metadata.version('vla-backend')}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser
