"""The whole conversion."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from vla_train.data.cache import all_files, content_file
from vla_train.data.convert import separate, shared
from vla_train.data.convert.output import Output
from vla_train.data.convert.source import Source, open_source
from vla_train.data.convert.streams import Encoding
from vla_train.data.errors import DataError
from vla_train.data.metadata import format_version

FORMATS: Final = ("v2.1", "v3.0")

# Written anew in every format; everything else under meta/ is kept.
_REWRITTEN = ("info.json", "episodes.jsonl", "episodes_stats.jsonl", "tasks.jsonl", "tasks.parquet", "stats.json")

Progress = Callable[[int], Callable[[], None]]


@dataclass(frozen=True)
class Options:
    """What is converted into what.

    Attributes:
        to: format of the new dataset, "v2.1" or "v3.0"; null = that of the source (v2.1 for v2.0).
        encoding: encode the videos anew; null = copy their frames as they are.
        skip_missing: leave out episodes without files instead of stopping.
    """

    to: str | None = None
    encoding: Encoding | None = None
    skip_missing: bool = False


def convert_dataset(
    source: Path | str, destination: Path | str, options: Options, *, progress: Progress = lambda total: lambda: None
) -> list[str]:
    """Write the dataset in `source` into `destination` in another format or with other videos.

    Samples stay the same, bit for bit unless videos are encoded anew. Episodes are numbered 0, 1, ... in listed order.
    An interrupted conversion goes on when it is started again with the same options. The source is not touched.

    Args:
        source: dataset folder.
        destination: folder to write, new or empty.
        options: what to do.
        progress: `progress(total)` is called with the number of steps and answers what is called after each.

    Returns:
        What the user should know about the result.

    Raises:
        DataError: the source is damaged or cannot be converted like this, or the destination is in use.
    """
    folder, destination = Path(source), Path(destination)
    if options.encoding:
        options.encoding.check()
    if destination.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{destination} lies in {folder}", fix="name a folder outside of the source")
    origin = open_source(folder, skip_missing=options.skip_missing)
    version = format_version(origin.info)
    to = options.to or ("v3.0" if origin.files.shared else "v2.1")
    if to not in FORMATS:
        raise DataError(f"cannot convert to {to!r}", fix=f"use {' or '.join(FORMATS)}")
    if to == version and not options.encoding:
        raise DataError(
            f"{folder} is {version} already", why="nothing to convert", fix="--gop N encodes its videos anew"
        )
    encoding = asdict(options.encoding) if options.encoding else None
    conversion = {"source": _content(folder), "to": to, "encoding": encoding, "skip_missing": options.skip_missing}
    output = Output(destination, conversion)
    write = shared.write if to == "v3.0" else separate.write
    info = write(origin, output, options.encoding, progress)
    notes = _keep_the_rest(origin, output)
    output.finish(info)
    return [*notes, *_notes(origin, info, options)]


def _content(folder: Path) -> str:
    """Names the source in the state it is in now."""
    return content_file("conversions", folder, all_files(folder)).stem


def _keep_the_rest(source: Source, output: Output) -> list[str]:
    """Copy `modality.json`, licences and whatever else belongs to the dataset."""
    stale = "stats_gr00t.json" if len(source.entries) < int(source.info.get("total_episodes") or 0) else ""
    for path in sorted([*source.folder.glob("*"), *(source.folder / "meta").glob("*")]):
        if path.is_file() and path.name not in (*_REWRITTEN, stale):
            name = path.relative_to(source.folder).as_posix()
            output.write(name, partial(shutil.copyfile, path))
    if stale and (source.folder / "meta" / stale).is_file():
        return [f"meta/{stale} is left out: it is that of all episodes"]
    return []


def _notes(source: Source, info: dict[str, Any], options: Options) -> list[str]:
    notes = []
    renumbered = [entry for i, entry in enumerate(source.entries) if int(entry["episode_index"]) != i]
    if renumbered:
        notes.append(f"{len(source.entries)} episodes are numbered anew from 0")
    dropped = source.info.get("features", {}).keys() - info["features"].keys()
    if dropped:
        notes.append(f"left out of info.json, no video: {', '.join(sorted(dropped))}")
    if options.encoding:
        notes.append("videos were encoded anew: frames differ a little from the original")
    return notes
