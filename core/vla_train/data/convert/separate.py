"""Writing LeRobot v2.1: one table and one video per camera for every episode."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from vla_train.data.convert.common import make, new_info
from vla_train.data.convert.output import Output
from vla_train.data.convert.source import Source, episode_stats
from vla_train.data.convert.streams import Encoding
from vla_train.data.files import TABLE, VIDEO

CHUNK: Final = 1000  # episodes per folder

Progress = Callable[[int], Callable[[], None]]


def write(source: Source, output: Output, encoding: Encoding | None, progress: Progress) -> dict[str, Any]:
    """Write everything but `meta/info.json`, which is returned."""
    step = progress(len(source.entries) * (1 + len(source.videos)))
    start = 0
    for number, entry in enumerate(source.entries):
        place = {"episode_chunk": number // CHUNK, "episode_index": number}
        output.write(TABLE.format(**place), partial(_write_table, source, number, start))
        start += int(entry["length"])
        step()
        for feature in source.videos:
            clip = source.files.video(int(entry["episode_index"]), feature)
            name = VIDEO.format(video_key=feature, **place)
            if encoding is None and not source.files.shared:
                output.write(name, partial(shutil.copyfile, clip.path))
            else:
                output.write(name, partial(make, clip, encoding))
            step()
    entries = [{**entry, "episode_index": number} for number, entry in enumerate(source.entries)]
    output.json_lines("meta/episodes.jsonl", entries)
    stats = enumerate(episode_stats(source))
    output.json_lines("meta/episodes_stats.jsonl", ({"episode_index": n, "stats": s} for n, s in stats))
    tasks = ({"task_index": number, "task": source.tasks[number]} for number in sorted(source.tasks))
    output.json_lines("meta/tasks.jsonl", tasks)
    count = len(entries)
    info = new_info(source, "v2.1", encoding)
    for key in ("data_files_size_in_mb", "video_files_size_in_mb"):
        info.pop(key, None)
    for feature in info["features"].values():
        if feature.get("dtype") != "video":
            feature.pop("fps", None)
    info |= {"total_chunks": -(-count // CHUNK), "total_videos": count * len(source.videos), "chunks_size": CHUNK}
    return info | {"data_path": TABLE, "video_path": VIDEO}


def _write_table(source: Source, number: int, start: int, path: Path) -> None:
    pq.write_table(source.rows(number, start), path)
