"""`vla plugin`."""

from __future__ import annotations

import argparse
from pathlib import Path

from vla_train.cli import plugin_new
from vla_train.cli.common import Subparsers, new_group, new_parser

CHECK = """\
  vla plugin check mychip
  vla plugin check mychip --tier contract,semantics --json conformance.json
  vla plugin check mychip --only cold_import
  vla plugin check --list"""


def add_parser(subparsers: Subparsers) -> None:
    commands = new_group(subparsers, "plugin", "Write and check a backend plugin.")
    plugin_new.add_parser(commands)

    summary = "Check whether a backend plugin keeps the contract and computes what it should; exit code 1 if not."
    parser = new_parser(commands, "check", check, summary, CHECK)
    parser.add_argument("name", metavar="NAME", nargs="?", help="an installed backend, see `vla backends`")
    parser.add_argument("--tier", metavar="TIER,...", help="contract, semantics, distributed, numerics, census")
    parser.add_argument("--only", metavar="CHECK,...", help="single checks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--list", action="store_true", help="print every check with what it proves, and run nothing")


def check(options: argparse.Namespace) -> int:
    """Print each result as it comes; 1 if a check failed."""
    from vla_backend.discovery import find
    from vla_backend.errors import BackendError
    from vla_train.conformance import TIERS, report, run, select

    tiers = options.tier.split(",") if options.tier else list(TIERS)
    only = options.only.split(",") if options.only else None
    checks = select(tiers, only)
    if options.list:
        print(report.listing(checks))
        return 0
    if not options.name:
        raise BackendError("`vla plugin check` needs the NAME of a backend.", fix="`vla backends` lists them")
    candidate = find(options.name)
    print(report.header(), flush=True)
    results = run(candidate, tiers, only, lambda result: print(report.row(result), flush=True))
    print(report.summary(options.name, results))
    if options.json:
        report.write_json(options.json, candidate, results)
    return 1 if any(result.outcome == "failed" for result in results) else 0
