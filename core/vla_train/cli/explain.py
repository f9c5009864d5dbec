"""`vla explain`."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_train.cli.common import Subparsers, add_backend_argument, add_config_arguments, new_parser

if TYPE_CHECKING:
    from vla_train.ledger import Difference, Ledger

EXAMPLES = """\
  vla explain --backend cpu
  vla explain --backend ascend --config examples/demo.yaml train.max_steps=10
  vla explain --run runs/demo
  vla explain --run runs/demo/checkpoints/step_00000100 --json
  vla explain --diff runs/on_one_chip runs/on_another"""
_VALUE_WIDTH = 60


def add_parser(subparsers: Subparsers) -> None:
    summary = "Say what was decided, by whom, why, and instead of what: for a backend, a run, or two runs compared."
    parser = new_parser(subparsers, "explain", run, summary, EXAMPLES)
    add_backend_argument(parser)
    parser.add_argument("--run", dest="folder", type=Path, metavar="FOLDER", help="of a run or a checkpoint")
    parser.add_argument(
        "--diff", nargs=2, type=Path, metavar=("RUN_A", "RUN_B"), help="only what differs between two runs"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the ledger, or the differences of two."""
    from vla_train import ledger
    from vla_train.config import ConfigError

    if options.overrides and not (options.config or options.model):
        raise ConfigError(
            f"Nothing says what to set {' '.join(options.overrides)} in.",
            fix="give --config FILE; a run's folder is named with --run FOLDER, two of them with --diff RUN_A RUN_B",
        )

    if options.diff:
        left, right = options.diff
        found = ledger.compare(ledger.read(left), ledger.read(right))
        print(_differences_json(found) if options.json else _differences(found, left, right))
        return 0
    shown = ledger.read(options.folder) if options.folder else _without_a_run(options)
    print(json.dumps(ledger.as_json(shown), indent=2) if options.json else _table(shown))
    return 0


def _without_a_run(options: argparse.Namespace) -> Ledger:
    """What would be decided now. A backend that can run here is loaded; of another one only the answers that need no
    chip are known."""
    from vla_backend import activate, choose
    from vla_backend.ledger import Decision, hook_decisions
    from vla_train.config import load_config
    from vla_train.launch.plan import WORKER, plan
    from vla_train.ledger import launch_ledger

    described: Ledger = {}
    if options.config or options.model:
        config, sources = load_config(options.config, options.overrides, options.model)
        backend = activate(choose(options.backend, config=config.backend), check_available=False)
        launch = plan(WORKER, [], config, backend, os.environ, config.parallel.processes)
        described = launch_ledger(backend, config, sources, launch, os.environ)
    else:
        backend = activate(choose(options.backend), check_available=False)
        probe = backend.probe()
        described["choice"] = [Decision("backend", backend.name, backend.candidate.why, probe.reason)]
    if backend.probe().ok:
        backend.load_stack()
        backend.local_device(0)
    described["backend"] = hook_decisions(backend)
    return described


def _table(shown: Ledger) -> str:
    lines = []
    for section, decisions in shown.items():
        if not decisions:
            continue
        lines += ["", section]
        for decision in decisions:
            lines.append(f"  {decision.subject} = {_value(decision.value)}    [{decision.source}]")
            if decision.replaced is not None:
                lines.append(f"      instead of {_value(decision.replaced)}")
            if decision.why:
                lines += textwrap.wrap(decision.why, 110, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines[1:])


def _differences(found: list[Difference], left: Path, right: Path) -> str:
    if not found:
        return f"{left} and {right} were decided alike"
    lines = [f"A  {left}", f"B  {right}"]
    section = ""
    for difference in found:
        if difference.section != section:
            section = difference.section
            lines += ["", section]
        lines.append(f"  {difference.subject}")
        for letter, decision in (("A", difference.left), ("B", difference.right)):
            said = "-" if decision is None else f"{_value(decision.value)}    [{decision.source}]"
            lines.append(f"    {letter} {said}")
    return "\n".join(lines)


def _differences_json(found: list[Difference]) -> str:
    from dataclasses import asdict

    return json.dumps([asdict(difference) for difference in found], indent=2)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        if "reason" in value and set(value) == {"reason", "remedy"}:
            return f"unsupported: {value['reason']}"
        value = ", ".join(f"{key}={part}" for key, part in value.items() if part not in ("", None, {}))
    text = value if isinstance(value, str) else json.dumps(value)
    return textwrap.shorten(text, _VALUE_WIDTH * 2, placeholder=" ...") or '""'
