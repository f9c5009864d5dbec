"""`vla sim` and `vla train --simulate`: programs on simulated chips.

A simulator is a module named by an entry point of the group `vla.simulators`, under the name of its backend, with

* `add_arguments(parser)`: its options, among them `--devices N`, and
* `start(options, command) -> int`: run `command`, children included, in a simulation; answers its exit code.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib import metadata
from typing import Any, Final

from vla_backend.errors import BackendError
from vla_train.cli.common import Subparsers, new_parser
from vla_train.cli.parser import Parser

GROUP: Final = "vla.simulators"
FLAG: Final = "--simulate"
OPTIONS_FLAG: Final = "--simulate-options"
EXAMPLES = """\
  vla sim ascend --help
  vla sim ascend -- python my_script.py
  vla sim ascend --devices 2 -- vla train --backend ascend --processes 2 --config examples/demo.yaml
  vla sim ascend --devices 2 --memory 8 --fault die:rank=1,step=5 -- vla train --backend ascend ...
  vla train --backend ascend --simulate 2 --processes 2 --config examples/demo.yaml"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Run a program, children included, on simulated chips."
    parser = new_parser(subparsers, "sim", run, summary, EXAMPLES)
    installed = ", ".join(sorted(simulators())) or "none"
    parser.usage = "vla sim NAME [options of the simulator] -- COMMAND [argument ...]"
    parser.add_argument("name", metavar="NAME", help=f"the simulator; installed: {installed}")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="`vla sim NAME --help` shows its options")


def run(options: argparse.Namespace) -> int:
    """Start the command in the simulator."""
    # As typed: before Python 3.13 argparse takes the first -- after NAME for its own.
    mine, mark, command = _split(options.arguments[options.arguments.index(options.name) + 1 :])
    module, parser = load(options.name)
    chosen = parser.parse_args(mine)
    if not mark or not command:
        parser.error("no command; put it after --")
    code: int = module.start(chosen, command)
    return code


def simulators() -> dict[str, metadata.EntryPoint]:
    """Installed simulators by name, none imported."""
    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}


def load(name: str) -> tuple[Any, argparse.ArgumentParser]:
    """The simulator `name` and the parser of its options.

    Raises:
        BackendError: there is none of that name, or it cannot be imported.
    """
    installed = simulators()
    if name not in installed:
        there = ", ".join(sorted(installed))
        raise BackendError(
            f"No simulator for '{name}' is installed.",
            why=f"installed simulators: {there or 'none'}",
            fix=f"choose one of them: {there}" if there else "install a backend that brings one",
        )
    try:
        module = installed[name].load()
    except Exception as error:
        raise BackendError(
            f"The simulator '{name}' cannot be imported ({installed[name].value}).",
            why=f"{type(error).__name__}: {error}",
            fix="repair or upgrade the distribution that brings it",
        ) from error
    parser = Parser(prog=f"vla sim {name}", usage=f"vla sim {name} [options] -- COMMAND [argument ...]")
    module.add_arguments(parser)
    return module, parser


def add_simulate_arguments(parser: argparse.ArgumentParser) -> None:
    """`--simulate` and the options it passes on."""
    parser.add_argument(
        FLAG, nargs="?", type=_count, const=0, metavar="N",
        help="run on N simulated chips of the backend (default: one per process)",
    )  # fmt: skip
    parser.add_argument(
        OPTIONS_FLAG, default="", metavar="TEXT",
        help="options of the simulator, e.g. '--memory 8 --fault oom:allocation=100'; see `vla sim NAME --help`",
    )  # fmt: skip


def again(backend: str, devices: int, text: str, arguments: list[str]) -> int:
    """Run `vla` with these arguments, less those that ask for the simulation, on simulated chips."""
    if backend == "auto":
        raise BackendError(
            f"{FLAG} needs the name of a backend.",
            why="the automatic choice looks at the chips of this machine",
            fix=f"add --backend NAME; installed simulators: {', '.join(sorted(simulators())) or 'none'}",
        )
    module, parser = load(backend)
    chosen = parser.parse_args(["--devices", str(devices), *shlex.split(text)])
    code: int = module.start(chosen, [sys.executable, "-m", "vla_train.cli", *without_flags(arguments)])
    return code


def without_flags(arguments: list[str]) -> list[str]:
    """`arguments` less `--simulate [N]` and `--simulate-options TEXT`."""
    kept, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        if word == FLAG:
            if rest and rest[0].isdigit():
                rest.pop(0)
        elif word == OPTIONS_FLAG:
            rest.pop(0)
        elif not word.startswith((f"{FLAG}=", f"{OPTIONS_FLAG}=")):
            kept.append(word)
    return kept


def _count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no number of devices; after {FLAG} comes a number or another option"
        )
    return int(text)


def _split(words: list[str]) -> tuple[list[str], bool, list[str]]:
    """The words before the first `--`, whether there is one, and those after it."""
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]
