"""`vla checkpoint`."""

from __future__ import annotations

import argparse

from vla_train.cli.common import Subparsers, new_parser

INSPECT = """\
  vla checkpoint inspect runs/demo
  vla checkpoint inspect runs/demo/checkpoints/step_00000100 --json"""
EXPORT = """\
  vla checkpoint export --format dit4dit runs/demo exported/
  vla checkpoint export --format dit4dit runs/demo exported/ --checkpoint 2000"""


def add_parser(subparsers: Subparsers) -> None:
    parent = subparsers.add_parser("checkpoint", help="Look at checkpoints and convert them.", allow_abbrev=False)
    commands = parent.add_subparsers(metavar="COMMAND", required=True)
