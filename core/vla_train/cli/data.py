"""`vla data`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from vla_train.cli.common import Subparsers, new_parser

CHECK = """\
  vla data check demos/pick_place
  vla data check demos/pick_place --deep
  vla data check demos/pick_place --json | python -m json.tool"""


def add_parser(subparsers: Subparsers) -> None:
    parent = subparsers.add_parser("data", help="Look at datasets, check and convert them.", allow_abbrev=False)
    commands = parent.add_subparsers(metavar="COMMAND", required=True)

    summary = "Report everything that is wrong with a dataset; 1 if training on it would stop or learn something false."
    parser = new_parser(commands, "check", check, summary, CHECK)
    parser.add_argument("path", metavar="PATH", help="folder of the dataset")
    parser.add_argument("--deep", action="store_true", help="decode every frame as well")
    parser.add_argument("--json", action="store_true", help="every finding, for programs")


def check(options: argparse.Namespace) -> int:
    """Print the findings, the worst first."""
    from vla_train.data.check import check_dataset
    from vla_train.data.check.findings import describe

    report = check_dataset(_folder(options.path), deep=options.deep, progress=_progress("videos"))
    if options.json:
        print(json.dumps(report.as_json(), indent=2))
        return 1 if report.errors else 0
    facts = report.facts
    there = f"{facts['episodes_present']} of {facts['episodes']}"
    episodes = facts["episodes"] if facts["episodes"] == facts["episodes_present"] else there
    cameras = [f"{name} {c['width']}x{c['height']} {c['codec']}" for name, c in facts["cameras"].items()]
    print(
        f"{report.path}: LeRobot {facts['format']}, {episodes} episodes, {facts['frames']} frames, {facts['fps']} fps"
    )
    print(f"cameras: {', '.join(cameras) or 'none'}")
    for line in describe(report.findings):
        print(line)
    counts = [f"{report.count(kind)} {kind}{'s' * (report.count(kind) != 1)}" for kind in ("error", "warning", "note")]
    how = "every frame decoded" if options.deep else "headers only, --deep decodes"
    print(f"{', '.join(counts)} in {facts['seconds']:.1f} s ({how})")
    return 1 if report.errors else 0


def _folder(path: str) -> Path:
    """The dataset folder, or the nearest that exists in a `ConfigError`."""
    from vla_train.config import ConfigError
    from vla_train.config.files import nearest_path

    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {path}.", fix=nearest_path(folder))
    return folder


def _progress(unit: str) -> Callable[[int], Callable[[], None]]:
    """A progress bar on a terminal, nothing elsewhere."""

    def start(total: int) -> Callable[[], None]:
        from tqdm import tqdm

        bar = tqdm(total=total, unit=f" {unit}", leave=False, disable=not sys.stderr.isatty())

        def step() -> None:
            bar.update()
            if bar.n >= total:
                bar.close()

        return step

    return start
