"""What both formats share: `info.json` and where an episode's video comes from."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from vla_train.data.convert.output import PARTS, Output
from vla_train.data.convert.source import STANDARD, Source
from vla_train.data.convert.streams import Encoding, cut, encode
from vla_train.data.files import Clip


def new_info(source: Source, version: str, encoding: Encoding | None) -> dict[str, Any]:
    """`info.json` of the new dataset without its path templates; features without files are left out."""
    info = deepcopy(source.info)
    features = info.get("features", {})
    for name in [name for name, feature in features.items() if feature.get("dtype") == "video"]:
        if name not in source.videos:
            del features[name]
        elif encoding:
            for key in ("info", "video_info"):
                if "video.codec" in features[name].get(key, {}):
                    features[name][key] |= {"video.codec": encoding.codec, "video.pix_fmt": "yuv420p"}
    count = len(source.entries)
    info |= {
        "codebase_version": version,
        "total_episodes": count,
        "total_frames": sum(int(entry["length"]) for entry in source.entries),
        "total_tasks": len(source.tasks),
        "splits": {"train": f"0:{count}"},
    }
    for key in ("total_chunks", "total_videos"):
        info.pop(key, None)
    for name in STANDARD:
        kind = "float32" if name == "timestamp" else "int64"
        features.setdefault(name, {"dtype": kind, "shape": [1], "names": None})
    return info


def part(source: Source, output: Output, number: int, feature: str, encoding: Encoding | None) -> Path:
    """A file that holds just the video of the `number`-th episode: the source's own, or one made for the purpose."""
    clip = source.files.video(int(source.entries[number]["episode_index"]), feature)
    if encoding is None and not source.files.shared:
        return clip.path
    name = f"{PARTS}/{feature}/{number:06d}.mp4"
    output.write(name, partial(make, clip, encoding))
    return output.folder / name


def make(clip: Clip, encoding: Encoding | None, out: Path) -> None:
    """The video of one episode in a file of its own."""
    if encoding is None:
        cut(clip, out)
    else:
        encode(clip, out, encoding)
