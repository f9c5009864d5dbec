"""The deep check: decode every frame of every video."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vla_train.data.check.contents import Contents
from vla_train.data.check.findings import ERROR, WARNING


def video_paths(contents: Contents) -> list[Path]:
    """Every video file in scope, once."""
    features = [feature for feature in contents.cameras().values() if contents.files.has_videos(feature)]
    clips = (contents.files.video(episode.index, feature).path for feature in features for episode in contents.present)
    return list(dict.fromkeys(clips))


def decode_all(contents: Contents, step: Callable[[], None]) -> None:
    """Decode every video from its first to its last frame; files that cannot be opened are left to the quick check."""
    broken = {finding.file for finding in contents.findings if finding.kind == "damaged-video"}
    for path in video_paths(contents):
        if path.relative_to(contents.folder).as_posix() not in broken:
            _decode(contents, path)
        step()


def _decode(contents: Contents, path: Path) -> None:
    import av

    decoded, expected, moved, previous = 0, 0, False, None
    try:
        with av.open(str(path)) as container:
            stream: Any = container.streams.video[0]
            expected = stream.frames
            stream.thread_type = "AUTO"
            # Without this FFmpeg conceals damaged blocks and goes on.
            stream.codec_context.options = {"err_detect": "explode"}
            for frame in container.decode(stream):
                luma = frame.to_ndarray()[: frame.height]
                moved = moved or (previous is not None and not np.array_equal(luma, previous))
                previous = luma
                decoded += 1
    except Exception as error:
        contents.add(
            ERROR,
            "undecodable",
            path,
            f"cannot be decoded after frame {decoded}: {str(error).splitlines()[0]}",
            "copy the file again, or remove the episode",
        )
        return
    if expected and decoded < expected:
        contents.add(
            ERROR,
            "undecodable",
            path,
            f"{decoded} of {expected} frames can be decoded",
            "copy the file again, or remove the episode",
        )
    elif decoded > 1 and not moved:
        contents.add(
            WARNING, "still-video", path, f"all {decoded} frames are the same", "check that the camera was running"
        )
