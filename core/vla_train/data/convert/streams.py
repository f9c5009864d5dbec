"""Joining, cutting and encoding videos with PyAV. Joining and cutting copy the compressed frames as they are."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vla_train.data.errors import DataError
from vla_train.data.files import Clip

# FFmpeg's encoder and its settings besides the keyframe interval; B frames would make random access slower.
ENCODERS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "h264": ("libx264", {"preset": "fast", "bf": "0"}),
    "h265": ("libx265", {"preset": "fast", "bf": "0", "x265-params": "log-level=error"}),
    "av1": ("libsvtav1", {"preset": "8"}),
}
QUALITY: Final = {"h264": 18, "h265": 20, "av1": 25}
#: The worst quality of each; 0 is the best.
WORST: Final = {"h264": 51, "h265": 51, "av1": 63}


@dataclass(frozen=True)
class Encoding:
    """How videos are encoded anew.

    Attributes:
        codec: key of `ENCODERS`.
        gop: frames from one keyframe to the next.
        crf: constant rate factor, smaller is better and larger.
    """

    codec: str
    gop: int
    crf: int

    def check(self) -> None:
        """Raise a `DataError` unless PyAV can encode this."""
        import av

        if self.codec not in ENCODERS:
            raise DataError(f"unknown codec {self.codec!r}", fix=f"use {', '.join(ENCODERS)}")
        if self.gop < 1:
            raise DataError(f"a keyframe every {self.gop} frames is impossible", fix="use --gop 1 or more")
        if not 0 <= self.crf <= WORST[self.codec]:
            raise DataError(
                f"{self.codec} has no quality {self.crf}",
                fix=f"use --crf 0 (best) to {WORST[self.codec]} (worst); {QUALITY[self.codec]} is the default",
            )
        encoder = ENCODERS[self.codec][0]
        if encoder not in av.codecs_available:
            raise DataError(
                f"the installed PyAV cannot encode {self.codec}",
                why=f"it was built without {encoder}",
                fix="--codec h264",
            )


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of FFmpeg become errors that name the video."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot convert {path}",
            why=getattr(error, "strerror", None) or str(error),
            fix="`vla data check --deep` tells damaged videos; --skip-missing goes on without those that are deleted",
        ) from error


def parameters(path: Path) -> tuple[object, ...]:
    """What must be equal for frames of several files to be decodable in one stream."""
    import av

    with naming(path), av.open(str(path)) as container:
        stream: Any = container.streams.video[0]
        context = stream.codec_context
        return (
            context.name,
            context.width,
            context.height,
            context.pix_fmt,
            stream.time_base,
            bytes(context.extradata or b""),
        )


def concatenate(paths: Sequence[Path], out: Path) -> list[tuple[float, float]]:
    """Join videos of equal `parameters`; where each one lies in `out`, (start, end) in seconds.

    A single file is copied byte by byte.
    """
    import av

    places: list[tuple[float, float]] = []
    if len(paths) == 1:
        shutil.copyfile(paths[0], out)
        with av.open(str(out)) as container:
            return [(0.0, _length(container.streams.video[0]) * float(container.streams.video[0].time_base or 0))]
    with av.open(str(out), "w", format="mp4") as target:
        writer: Any = None
        offset, last = 0, -math.inf
        for path in paths:
            with naming(path), av.open(str(path)) as source:
                stream: Any = source.streams.video[0]
                base = float(stream.time_base)
                if writer is None:
                    writer = _like(target, stream)
                packets = list(_packets(source, stream))
                # Decoding times must ascend over the join as well.
                offset = max(offset, math.floor(last) + 1 - packets[0].dts if packets and last > -math.inf else 0)
                for packet in packets:
                    packet.pts, packet.dts, packet.stream = packet.pts + offset, packet.dts + offset, writer
                    last = packet.dts
                    target.mux(packet)
                end = offset + _length(stream)
                places.append((offset * base, end * base))
                offset = end
    return places


def cut(clip: Clip, out: Path) -> None:
    """Write the frames of a clip into a file of their own.

    Raises:
        DataError: the clip does not begin with a keyframe, so that it cannot be cut without encoding it anew.
    """
    import av

    with naming(clip.path), av.open(str(clip.path)) as source, av.open(str(out), "w", format="mp4") as target:
        stream: Any = source.streams.video[0]
        start, end = _ticks(clip, stream)
        writer = _like(target, stream)
        if clip.start:
            source.seek(max(int(start), 0), stream=stream, backward=True)
        packets = [packet for packet in _packets(source, stream) if start <= packet.pts < end]
        if not packets or not packets[0].is_keyframe:
            raise DataError(
                f"{clip.path} cannot be cut at {clip.start:.3f} s",
                why="no keyframe is there",
                fix="encode the videos anew as well: --gop 2",
            )
        # The episode's timestamps count from clip.start.
        base = min(round(clip.start / stream.time_base), min(packet.pts for packet in packets))
        for packet in packets:
            packet.pts, packet.dts, packet.stream = packet.pts - base, packet.dts - base, writer
            target.mux(packet)


def encode(clip: Clip, out: Path, encoding: Encoding) -> None:
    """Decode a clip and encode it anew; every frame keeps its time.

    Raises:
        DataError: the clip cannot be decoded.
    """
    import av

    name, settings = ENCODERS[encoding.codec]
    with naming(clip.path), av.open(str(clip.path)) as source, av.open(str(out), "w", format="mp4") as target:
        stream: Any = source.streams.video[0]
        stream.thread_type = "AUTO"
        start, end = _ticks(clip, stream)
        base = round(clip.start / stream.time_base)
        writer: Any = None
        if clip.start:
            source.seek(max(int(start), 0), stream=stream, backward=True)
        for frame in source.decode(stream):
            if frame.pts is None or frame.pts < start:
                continue
            if frame.pts >= end:
                break
            if writer is None:
                options = {**settings, "crf": str(encoding.crf), "g": str(encoding.gop)}
                writer = target.add_stream(name, rate=stream.average_rate, options=options)
                writer.width, writer.height, writer.pix_fmt = frame.width, frame.height, "yuv420p"
                writer.codec_context.time_base = writer.time_base = stream.time_base
                _copy_colours(stream.codec_context, writer.codec_context)
            if frame.format.name != "yuv420p":
                frame = frame.reformat(format="yuv420p")
            frame.pts, frame.time_base, frame.pict_type = max(frame.pts - base, 0), stream.time_base, 0
            target.mux(writer.encode(frame))
        if writer is None:
            raise ValueError("no frame is there")
        target.mux(writer.encode())


def _like(target: Any, stream: Any) -> Any:
    """A stream of `target` that takes the packets of `stream`."""
    make = getattr(target, "add_stream_from_template", None)
    # Opaque: nothing is encoded, and some decoders (AV1's) have no encoder of the same name.
    writer = make(stream, opaque=True) if make else target.add_stream(template=stream)  # PyAV before 14
    writer.time_base = stream.time_base
    return writer


def _packets(source: Any, stream: Any) -> Iterator[Any]:
    for packet in source.demux(stream):
        if packet.pts is None or packet.dts is None or not packet.size:
            continue
        if packet.is_discard:
            raise DataError(
                f"{source.name} shows only a part of its frames (edit list)",
                why="copied into another file, the hidden frames would appear",
                fix="encode the videos anew as well: --gop 2",
            )
        yield packet


def _length(stream: Any) -> int:
    """Duration in ticks; what the last frame is shown for counts."""
    return int((stream.start_time or 0) + (stream.duration or 0))


def _ticks(clip: Clip, stream: Any) -> tuple[float, float]:
    """The clip's start and end in ticks, half a frame early: ends are sums of durations and off by rounding."""
    half = 0.5 / float(stream.average_rate) if clip.start or clip.end < math.inf else 0.0
    base = float(stream.time_base)
    return ((clip.start - half) / base if clip.start else -math.inf), (clip.end - half) / base


def _copy_colours(source: Any, target: Any) -> None:
    for name in ("color_range", "colorspace", "color_primaries", "color_trc"):
        value = getattr(source, name, None)
        if value is not None and hasattr(target, name):
            setattr(target, name, value)
