"""Checks of the videos: headers only, or every frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_backend import VideoContext
from vla_train.data.check.contents import Contents
from vla_train.data.check.findings import ERROR, NOTE, WARNING
from vla_train.data.check.layout import INFO
from vla_train.data.check.rows import TOLERANCE, Clock, Tables, pointer
from vla_train.data.errors import DataError
from vla_train.data.files import Clip
from vla_train.data.video import OVERRUN, clip_frames, close_readers, read_frames

LACKING = 0.2  # of an episode without frames is more than a recorder that stopped a little early
SPARSE = 30  # frames from one keyframe to the next above which random access is slow


@dataclass(frozen=True)
class Header:
    """What a video says about itself.

    Attributes:
        codec: FFmpeg's name of it, such as h264 or av1.
        width, height: pixels; 0 if unknown.
        times: presentation time of every frame in seconds, ascending, (N,).
        keyframes: how many of them are keyframes.
        end: position in the file, in bytes, of the last frame's end.
    """

    codec: str
    width: int
    height: int
    times: np.ndarray
    keyframes: int
    end: int


def read_header(path: Path) -> Header:
    """Header and index of a video; no frame is decoded, and with a recent PyAV none is read.

    Raises:
        ValueError: no video stream or no frame.
        OSError: not a video file.
    """
    import av

    with av.open(str(path)) as container:
        if not container.streams.video:
            raise ValueError("no video stream")
        stream: Any = container.streams.video[0]
        base = float(stream.time_base or 0)
        entries = getattr(stream, "index_entries", None)
        if entries is not None and len(entries):
            rows = [(entry.timestamp, entry.is_keyframe, entry.pos + entry.size) for entry in entries]
            # The index counts decoding times; presentation starts later by the delay of reordered frames.
            shift = (stream.start_time or 0) - rows[0][0]
        else:
            packets = [packet for packet in container.demux(stream) if packet.pts is not None and packet.size]
            rows = [(packet.pts, packet.is_keyframe, (packet.pos or 0) + packet.size) for packet in packets]
            shift = 0
        if not rows:
            raise ValueError("the file holds no video frame")
        times = np.sort(np.asarray([row[0] + shift for row in rows], dtype=np.float64)) * base
        context = stream.codec_context
        keyframes, end = sum(row[1] for row in rows), max(row[2] for row in rows)
        if context is None:  # PyAV has no decoder for it; another library may
            return Header("an unknown codec", 0, 0, times, keyframes, end)
        codec = getattr(context.codec, "canonical_name", context.name)
        return Header(codec, context.width, context.height, times, keyframes, end)


def check_videos(contents: Contents, tables: Tables, context: VideoContext, step: Callable[[], None]) -> dict[str, Any]:
    """Look at the header of every video; the facts about the cameras. `step` is called once per file."""
    facts: dict[str, Any] = {}
    codecs: dict[str, Path] = {}
    for camera, feature in contents.cameras().items():
        headers: dict[Path, Header | None] = {}
        for episode in contents.present if contents.files.has_videos(feature) else ():
            clip = contents.files.video(episode.index, feature)
            if clip.path not in headers:
                headers[clip.path] = _open(contents, clip.path)
                step()
            header = headers[clip.path]
            if header is not None:
                codecs.setdefault(header.codec, clip.path)
                _check_clip(contents, clip, header, tables.clocks.get(episode.index), episode.index)
        readable = {path: header for path, header in headers.items() if header is not None}
        if readable:
            facts[camera] = _check_feature(contents, feature, readable)
    for codec, path in codecs.items():
        _check_codec(contents, codec, path, context)
    return facts


def _open(contents: Contents, path: Path) -> Header | None:
    remedy = "copy the file again, or remove the episode"
    try:
        said = pointer(path)
        if said:
            contents.add(ERROR, "damaged-video", path, said, "run `git lfs pull` in the folder")
            return None
        header = read_header(path)
    except (OSError, ValueError) as error:
        size = path.stat().st_size
        contents.add(ERROR, "damaged-video", path, f"cannot be opened ({size} bytes): {_line(error)}", remedy)
        return None
    size = path.stat().st_size
    if header.end > size:
        contents.add(
            ERROR, "damaged-video", path, f"is cut off: {size} bytes of at least {header.end} are there", remedy
        )
        return None
    return header


def _line(error: Exception) -> str:
    return getattr(error, "strerror", None) or (str(error) or type(error).__name__).splitlines()[0]


def _check_clip(contents: Contents, clip: Clip, header: Header, clock: Clock | None, index: int) -> None:
    _, times = clip_frames(clip, header.times)
    where = f"episode {index}: " if clip.start or clip.end < np.inf else ""
    if not len(times):
        what = (
            f"{where}no frame between {clip.start:.2f} and {clip.end:.2f} s; the file ends at {header.times[-1]:.2f} s"
        )
        contents.add(ERROR, "short-video", clip.path, what, "copy the file again, or correct meta/episodes/")
        return
    if clock is None:
        return
    step = float(np.median(np.diff(times))) if len(times) > 1 else clock.step
    lacking = clock.last - float(times[-1])
    agree = not clock.step or abs(step / clock.step - 1) <= TOLERANCE
    frames = f"{where}{len(times)} frames to {times[-1]:.2f} s; the table has {clock.rows} rows to {clock.last:.2f} s"
    if not agree and abs(len(times) - clock.rows) <= max(1, TOLERANCE * clock.rows):
        contents.add(
            ERROR,
            "video-rate",
            clip.path,
            f"{frames}: one frame per row, but {1 / step:.4g} frames and {1 / clock.step:.4g} rows per second, "
            "so rows would be shown with frames of other moments",
            "correct the timestamps, or re-encode the video at the table's rate",
        )
    elif lacking > OVERRUN or lacking > LACKING * clock.last:
        remedy = "copy the video again; if it is whole, the table's timestamps do not fit its frame rate"
        contents.add(ERROR, "short-video", clip.path, frames, remedy)
    elif not agree:
        contents.add(
            WARNING,
            "video-rate",
            clip.path,
            f"{where}{1 / step:.4g} frames and {1 / clock.step:.4g} rows per second; the nearest frame is taken",
            "nothing to do if this is meant",
        )
    elif len(times) < clock.rows:
        what = f"{frames}; its last frame stands for the rest"
        contents.add(WARNING, "frame-count", clip.path, what, "nothing to do for a few frames; else copy it again")
    elif len(times) > clock.rows + 1:
        contents.add(WARNING, "frame-count", clip.path, frames, "check that the video belongs to this episode")


def _check_feature(contents: Contents, feature: str, headers: dict[Path, Header]) -> dict[str, Any]:
    """One camera over all its files."""
    described = contents.info.get("features", {}).get(feature, {})
    first = next(iter(headers.values()))
    size = (first.width, first.height)
    other = next((path for path, header in headers.items() if (header.width, header.height) != size), None)
    if other:
        what = f"{feature} is {headers[other].width}x{headers[other].height} here and {size[0]}x{size[1]} elsewhere"
        contents.add(WARNING, "video-size", other, what, "views are resized; check that the camera is the same")
    shape = described.get("shape") or []
    if len(shape) == 3 and first.width and size[::-1] not in (tuple(shape[:2]), tuple(shape[1:])):
        what = f"{feature} is said to be {shape}, its videos are {size[0]}x{size[1]}"
        contents.add(WARNING, "video-size", INFO, what, "the videos count; correct info.json")
    said = (described.get("video_info") or described.get("info") or {}).get("video.codec")
    if said and said != first.codec:
        what = f"{feature} is said to be {said}, its videos are {first.codec}"
        contents.add(WARNING, "codec-name", INFO, what, "the videos count; correct info.json")
    frames, keys = (
        sum(values) for values in zip(*((len(h.times), h.keyframes) for h in headers.values()), strict=True)
    )
    interval = frames / max(keys, 1)
    if interval > SPARSE:
        what = f"{feature} has a keyframe every {interval:.0f} frames; every 2 make random access several times faster"
        contents.add(NOTE, "keyframes", "videos", what, "`vla data convert PATH NEW --gop 2`")
    return {"codec": first.codec, "width": size[0], "height": size[1], "keyframe_interval": round(interval, 1)}


def _check_codec(contents: Contents, codec: str, path: Path, context: VideoContext) -> None:
    """One frame of one file per codec: the only decoding of the quick check."""
    try:
        read_frames(path, [0.0], context)
    except DataError as error:
        contents.add(ERROR, "codec", path, f"{codec}: {error.what}: {error.why}", error.fix)
    finally:
        close_readers()
