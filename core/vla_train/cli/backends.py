"""`vla backends`."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from vla_train.cli.common import Subparsers, new_parser

EXAMPLES = """\
  vla backends
  vla backends --json | python -m json.tool"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "List the installed backends: what can run here, and why not."
    parser = new_parser(subparsers, "backends", run, summary, EXAMPLES)
    parser.add_argument("--json", action="store_true", help="everything, for programs")


def run(options: argparse.Namespace) -> int:
    """Print a table or JSON; a plugin that is broken is a row, not a failure of the command."""
    rows = survey()
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    table = [("BACKEND", "AVAILABLE", "DEVICES", "HOOKS", "DISTRIBUTION", "WHY")]
    for row in rows:
        total = len(row["implemented"]) + len(row["defaulted"])
        hooks = f"{len(row['implemented'])} of {total}" if total else "-"
        devices = "shared" if row["shared"] else str(row["device_count"])
        origin = f"{row['distribution']} {row['version']}"
        table.append((row["name"], "yes" if row["available"] else "no", devices, hooks, origin, row["reason"]))
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]) - 1)]
    remedies = {row["name"]: row["remedy"] for row in rows if not row["available"] and row["remedy"]}
    for cells in table:
        left = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False))
        print(f"{left}  {cells[-1]}")
        if cells[0] in remedies:
            print(f"{'':{widths[0]}}  -> {remedies[cells[0]]}")
    return 0


def survey() -> list[dict[str, Any]]:
    """Every installed backend, loaded and probed in this process without torch."""
    from vla_backend import BackendError, activate, candidates

    rows: list[dict[str, Any]] = []
    for candidate in candidates().values():
        row: dict[str, Any] = {
            "name": candidate.name,
            "distribution": candidate.distribution,
            "version": candidate.version,
            "target": candidate.target,
            "available": False,
            "reason": "",
            "remedy": "",
            "device_type": "",
            "vendor": "",
            "device_count": 0,
            "shared": False,
            "implemented": [],
            "defaulted": [],
        }
        rows.append(row)
        try:
            backend = activate(candidate, check_available=False)
            probe = backend.probe(os.environ)
            providers = backend.providers()
        except BackendError as error:
            row.update(reason=f"{error.what} {error.why}".strip(), remedy=error.fix)
            continue
        row.update(
            available=probe.ok,
            reason=probe.reason,
            remedy=probe.remedy,
            device_type=backend.device_type,
            vendor=backend.info.vendor,
            device_count=probe.device_count,
            shared=probe.shared,
            implemented=sorted(hook for hook, provider in providers.items() if provider != "default"),
            defaulted=sorted(hook for hook, provider in providers.items() if provider == "default"),
        )
    return rows
