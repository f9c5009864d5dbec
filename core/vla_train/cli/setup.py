"""`vla setup`."""

from __future__ import annotations

import argparse
from importlib import metadata
from typing import Final

from vla_train.cli.common import Subparsers, new_parser

#: Entry-point group: the name is the backend's, the value a function `(version set, machine) -> shell script`, both
#: "" for the usual ones.
GROUP: Final = "vla.setup"
EXAMPLES = """\
  vla setup ascend --print
  vla setup ascend --print --set 2.12.0 --machine aarch64 > setup.sh"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Print the commands that bring a bare host to its first training run."
    parser = new_parser(subparsers, "setup", run, summary, EXAMPLES)
    parser.add_argument("backend", metavar="BACKEND", help="of the host")
    parser.add_argument("--print", action="store_true", help="print the script; nothing is ever installed from here")
    parser.add_argument("--set", default="", metavar="VERSION", help="version set (default: the proven one)")
    parser.add_argument("--machine", default="", choices=["x86_64", "aarch64"], help="default: that of this host")


def run(options: argparse.Namespace) -> int:
    """Print the script of the backend's plugin."""
    from vla_train.config import ConfigError

    scripts = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    if options.backend not in scripts:
        raise ConfigError(
            f"There is no set-up script for '{options.backend}'.",
            why=f"plugins that bring one: {', '.join(sorted(scripts)) or 'none'}",
            fix="`vla doctor --backend NAME` says what a host lacks",
        )
    if not options.print:
        raise ConfigError(
            "`vla setup` changes nothing by itself.",
            why="drivers and toolkits belong to the owner of a host",
            fix=f"vla setup {options.backend} --print > setup.sh, read it, then run it",
        )
    print(scripts[options.backend].load()(options.set, options.machine), end="")
    return 0
