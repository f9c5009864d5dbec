"""Decoding frames of an episode's video, by time, with whichever decoder is installed and able."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vla_backend import VideoContext
from vla_train.data.decoders import DECODERS, FrameReader, defect, installed
from vla_train.data.errors import DataError
from vla_train.data.files import Clip

log = logging.getLogger(__name__)

_READERS_KEPT = 32  # open files per process
OVERRUN = 1.0  # seconds; recorders often stop the video some frames early, but not more than that

_lock = threading.RLock()  # a reader seeks, so it serves one caller at a time
_readers: OrderedDict[tuple[str, tuple[str, ...], str, int], FrameReader] = OrderedDict()
_owner = os.getpid()
_announced: set[str] = set()


def resolve_decoder(requested: str, context: VideoContext) -> VideoContext:
    """The context with `decoders` reduced to what may be used here.

    Args:
        requested: `data.decoder`: "auto" or the name of a decoder.
        context: the backend's preference.

    Raises:
        DataError: the decoder asked for is unknown or not installed, or none is installed.
    """
    if requested != "auto":
        if requested not in DECODERS:
            raise DataError(
                f"unknown video decoder {requested!r}", why="data.decoder", fix=f"use auto or {', '.join(DECODERS)}"
            )
        if not installed(requested):
            raise DataError(
                f"video decoder {requested!r} is not installed",
                why=f"data.decoder={requested}",
                fix=f"{DECODERS[requested].install}; or data.decoder=auto",
            )
        if defect(requested):
            raise DataError(
                f"video decoder {requested!r} is installed but does not load",
                why=defect(requested),
                fix=f"{DECODERS[requested].install}; or data.decoder=auto",
            )
        return VideoContext(decoders=(requested,), device=context.device, threads=context.threads)
    able = tuple(name for name in context.decoders if name in DECODERS and installed(name))
    if not able:
        raise DataError(
            "no video decoder is installed",
            why=f"the backend names {', '.join(context.decoders)}",
            fix=DECODERS["pyav"].install,
        )
    return VideoContext(decoders=able, device=context.device, threads=context.threads)


def read_frames(path: Path | str, timestamps: Sequence[float] | np.ndarray, context: VideoContext) -> np.ndarray:
    """The frames a file with one episode shows at `timestamps`; see `read_clip`."""
    return read_clip(Clip(Path(path)), timestamps, context)


def read_clip(clip: Clip, timestamps: Sequence[float] | np.ndarray, context: VideoContext) -> np.ndarray:
    """The frames shown at `timestamps`.

    For every timestamp the frame with the nearest presentation time is taken (the earlier one of two equally near);
    up to one second past its end the last one. Frames of other episodes in the same file are never taken.
    Readers stay open, a bounded number per process.

    Args:
        clip: where the episode is.
        timestamps: seconds from the start of the clip, any order, repeats allowed.
        context: decoders in order of preference (`resolve_decoder`), device and threads.

    Returns:
        (len(timestamps), H, W, 3) uint8 RGB.

    Raises:
        DataError: the file is missing, too short, or no decoder can read it.
    """
    path = clip.path
    with _lock:
        reader = _open(str(path), context)
        first, times = clip_frames(clip, reader.times)
        if not len(times):
            raise DataError(
                f"{path} has no frame between {clip.start:.2f} and {clip.end:.2f} s",
                why=f"the metadata places an episode there; the file ends at {reader.times[-1]:.2f} s",
                fix="copy the video again",
            )
        wanted = np.asarray(timestamps, dtype=np.float64)
        if wanted.max(initial=0.0) > times[-1] + OVERRUN:
            raise DataError(
                f"{path} ends at {times[-1]:.2f} s{' of the episode' if clip.start else ''}",
                why=f"the episode's table asks for {wanted.max():.2f} s",
                fix="copy the video again; if it is whole, the table's timestamps do not fit its frame rate",
            )
        try:
            return reader.frames(first + nearest_frames(times, wanted))
        except Exception as error:
            close_readers()
            raise DataError(
                f"cannot decode {path}",
                why=f"{reader.name}: {error}",
                fix="the file may be damaged: copy it again, or try another data.decoder",
            ) from error


def clip_frames(clip: Clip, times: np.ndarray) -> tuple[int, np.ndarray]:
    """Which frames of a file belong to a clip.

    Args:
        clip: the clip.
        times: presentation times of all frames of the file, ascending, (N,) in seconds.

    Returns:
        Index of the clip's first frame, and the times of its frames counted from its start.
    """
    if clip.start == 0.0 and clip.end == math.inf:
        return 0, times
    # Starts and ends are sums of durations and off by rounding; frames are much further apart than that.
    slack = max((times[-1] - times[0]) / max(len(times) - 1, 1) / 2, 1e-6)
    first, end = np.searchsorted(times, (clip.start - slack, clip.end - slack))
    return int(first), times[first:end] - clip.start


def nearest_frames(times: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Index of the time nearest to each wanted one, the earlier of two equally near. `times` ascend; (len(wanted),)."""
    right = np.clip(np.searchsorted(times, wanted), 0, len(times) - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(wanted - times[left]) <= np.abs(wanted - times[right]), left, right)
    return np.searchsorted(times, times[nearest])  # the first of several with the same time


def frame_count(path: Path | str, context: VideoContext) -> int:
    """Number of frames in the video; errors as `read_frames`."""
    with _lock:
        return len(_open(str(path), context).times)


def close_readers() -> None:
    """Close every reader this process holds."""
    with _lock:
        while _readers:
            _readers.popitem()[1].close()


def _open(path: str, context: VideoContext) -> FrameReader:
    global _owner
    if os.getpid() != _owner:  # a forked worker must not share file positions with its parent
        _readers.clear()
        _owner = os.getpid()
    key = (path, context.decoders, context.device, context.threads)
    if key in _readers:
        _readers.move_to_end(key)
        return _readers[key]
    if not os.path.isfile(path):
        raise DataError(
            f"video {path} does not exist",
            why="the episode's table names steps in it",
            fix="download the file, or set data.skip_missing_episodes=true to go on without such episodes",
        )
    failures: list[str] = []
    for name in context.decoders:
        if defect(name):
            failures.append(f"{name}: {defect(name)}")
            continue
        try:
            reader = DECODERS[name].open(path, context.device, context.threads)
        except Exception as error:
            failures.append(f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            continue
        _announce(name, reader.codec, failures)
        _readers[key] = reader
        while len(_readers) > _READERS_KEPT:
            _readers.popitem(last=False)[1].close()
        return reader
    others = [name for name in DECODERS if name not in context.decoders]
    hint = "; ".join(f"{DECODERS[name].install} ({name})" for name in others)
    raise DataError(
        f"no decoder can open {path}",
        why="; ".join(failures),
        fix=f"data.decoder=auto, or another decoder: {hint}" if others else "the file may be damaged: copy it again",
    )


def _announce(name: str, codec: str, failures: list[str]) -> None:
    choice = f"decoding {codec or 'video'} with {name}"
    if choice not in _announced:
        _announced.add(choice)
        log.info("%s%s", choice, f" (not able: {'; '.join(failures)})" if failures else "")
