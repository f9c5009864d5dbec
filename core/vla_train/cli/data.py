"""`vla data`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from vla_train.cli.common import Subparsers, at_least, new_group, new_parser

CHECK = """\
  vla data check demos/pick_place
  vla data check demos/pick_place --deep
  vla data check demos/pick_place --json | python -m json.tool"""

CONVERT = """\
  vla data convert demos/pick_place demos/pick_place_v3 --to v3.0
  vla data convert demos/pick_place demos/pick_place_fast --gop 2
  vla data convert demos/from_hub demos/from_hub_v2 --to v2.1 --gop 2 --codec h264"""

STATS = """\
  vla data stats demos/pick_place
  vla data stats demos/pick_place --out statistics.json"""
SHOW = """\
  vla data show demos/pick_place 3
  vla data show demos/pick_place 3 --frames 12 --out episode.png"""


def add_parser(subparsers: Subparsers) -> None:
    commands = new_group(subparsers, "data", "Look at datasets, check and convert them.")

    summary = "Report everything that is wrong with a dataset; 1 if training on it would stop or learn something false."
    parser = new_parser(commands, "check", check, summary, CHECK)
    parser.add_argument("path", metavar="PATH", help="folder of the dataset")
    parser.add_argument("--deep", action="store_true", help="decode every frame as well")
    parser.add_argument("--json", action="store_true", help="every finding, for programs")

    summary = "Convert a dataset between LeRobot v2.x and v3.0, or encode its videos anew for fast random access."
    parser = new_parser(commands, "convert", convert, summary, CONVERT)
    parser.add_argument("source", metavar="SRC", help="folder of the dataset; it is not touched")
    parser.add_argument("destination", metavar="DST", help="folder to write; an interrupted conversion goes on")
    parser.add_argument("--to", choices=["v2.1", "v3.0"], help="format (default: that of SRC)")
    parser.add_argument("--gop", type=int, metavar="N", help="encode the videos anew with a keyframe every N frames")
    parser.add_argument("--codec", default=None, metavar="NAME", help="h264 (default), h265 or av1; with --gop")
    parser.add_argument("--crf", type=int, metavar="N", help="quality, smaller is better (default: 18 for h264)")
    parser.add_argument("--skip-missing", action="store_true", help="leave out listed episodes without files")

    summary = "Print the normalisation statistics of every state and action dimension."
    parser = new_parser(commands, "stats", stats, summary, STATS)
    parser.add_argument("path", metavar="PATH", help="folder of the dataset")
    parser.add_argument("--out", metavar="FILE", help="write those of every column as JSON; see docs/data.md")
    parser.add_argument("--json", action="store_true", help="print them as JSON, for programs")

    summary = "Draw a contact sheet of one episode: frames of every camera, curves of states and actions."
    parser = new_parser(commands, "show", show, summary, SHOW)
    parser.add_argument("path", metavar="PATH", help="folder of the dataset")
    parser.add_argument("episode", metavar="EP", type=int, help="number of the episode")
    parser.add_argument("--frames", type=at_least(1), default=8, metavar="N", help="frames per camera (default: 8)")
    parser.add_argument("--out", metavar="FILE", help="PNG to write (default: <set>_episode_<EP>.png here)")


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


def convert(options: argparse.Namespace) -> int:
    """Convert, and say what the user should know about the result."""
    from vla_train.config import ConfigError
    from vla_train.data.convert import Options, convert_dataset
    from vla_train.data.convert.streams import QUALITY, Encoding

    encoding = None
    if options.gop is not None:
        codec = options.codec or "h264"
        encoding = Encoding(codec, options.gop, QUALITY.get(codec, 0) if options.crf is None else options.crf)
    elif options.codec or options.crf is not None:
        raise ConfigError("--codec and --crf need --gop.", why="videos are encoded anew only then", fix="add --gop 2")
    if not options.to and not encoding:
        raise ConfigError("Nothing to convert.", fix="name a format (--to v3.0), or encode the videos anew (--gop 2)")
    choice = Options(options.to, encoding, options.skip_missing)
    destination = Path(options.destination).expanduser()
    notes = convert_dataset(_folder(options.source), destination, choice, progress=_progress("files"))
    print(f"{destination} is written; `vla data check {destination}` looks at it")
    for note in notes:
        print(f"note: {note}")
    return 0


def stats(options: argparse.Namespace) -> int:
    """Compute the statistics over all tables, or take them from the cache."""
    from vla_train.data.lerobot import LeRobotDataset
    from vla_train.data.statistics import STATISTICS, dataset_statistics, part_statistics

    dataset = LeRobotDataset(_folder(options.path))
    columns = dataset_statistics(dataset.folder, dataset.files.table_paths(), whole=True)
    if options.out:
        out = Path(options.out).expanduser()
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(columns, indent=2) + "\n", encoding="utf-8")
        print(f"{out} is written")
    if options.json:
        print(json.dumps(columns, indent=2))
    if options.out or options.json:
        return 0
    modality = dataset.modality
    rows: list[tuple[str, ...]] = [("", *STATISTICS)]
    for group, parts in (("state", modality.state), ("action", modality.action)):
        for name, values in part_statistics(columns, parts, dataset.folder).items():
            for i in range(len(values["mean"])):
                label = f"{group}.{name}[{i}]" if len(values["mean"]) > 1 else f"{group}.{name}"
                rows.append((label, *(f"{values[key][i]:.4g}" for key in STATISTICS)))
    width = max(len(row[0]) for row in rows)
    for label, *cells in rows:
        print(f"{label:<{width}}" + "".join(f"{cell:>12}" for cell in cells))
    return 0


def show(options: argparse.Namespace) -> int:
    """Draw the sheet and say where it is."""
    from vla_backend import VideoContext
    from vla_train.data.decoders import DECODERS
    from vla_train.data.lerobot import LeRobotDataset
    from vla_train.data.sheet import contact_sheet, find_episode, write_sheet
    from vla_train.data.video import resolve_decoder

    dataset = LeRobotDataset(_folder(options.path).resolve())
    episode = find_episode(dataset, options.episode)
    out = Path(options.out or f"{dataset.name}_episode_{episode.index}.png").expanduser()
    context = resolve_decoder("auto", VideoContext(decoders=tuple(DECODERS)))
    write_sheet(contact_sheet(dataset, episode, context, options.frames), out)
    print(f"{out} is written")
    return 0


def _folder(path: str) -> Path:
    """The dataset folder, or the nearest that exists in a `ConfigError`."""
    from vla_train.config import ConfigError
    from vla_train.config.files import nearest_path

    folder = Path(path).expanduser()
    if folder.is_file():
        raise ConfigError(f"{path} is a file.", fix="name the dataset's folder, which holds meta/, data/ and videos/")
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
