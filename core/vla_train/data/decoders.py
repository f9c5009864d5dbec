"""Video decoders behind one small interface. Libraries are imported when the first file is opened."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class FrameReader(Protocol):
    """One open video.

    Attributes:
        name: decoder.
        codec: codec of the file; empty if the decoder does not tell.
        times: presentation time of every frame in seconds, ascending, (N,) float64.
    """

    name: str
    codec: str
    times: np.ndarray

    def frames(self, indices: np.ndarray) -> np.ndarray:
        """Frames by index, (len(indices), H, W, 3) uint8 RGB."""

    def close(self) -> None:
        """Give file and memory back at once."""


#: Frames; measured on small H.264 videos with a keyframe every 2 frames, where seeking costs a third more.
_DELAY = 8


class PyAVReader:
    """PyAV (FFmpeg bindings). Times come from the packets, so opening a file decodes nothing."""

    name = "pyav"

    def __init__(self, path: str, device: str, threads: int) -> None:
        import av
        from av.video.reformatter import VideoReformatter

        # One converter for all frames, on as many threads as the decoder: setting one up for each frame, or waking
        # a thread pool, costs several times more than converting a small frame.
        self._converter = VideoReformatter()
        self._convert_options: dict[str, Any] = {"format": "rgb24", "threads": threads or None}
        self._container: Any = av.open(path)
        self._stream: Any = self._container.streams.video[0]
        self._stream.codec_context.thread_count = threads
        self._stream.thread_type = "NONE" if threads == 1 else "AUTO"
        self.codec = str(self._stream.codec_context.name)
        packets = [
            (int(packet.pts), bool(packet.is_keyframe))
            for packet in self._container.demux(self._stream)
            if packet.pts is not None and packet.size and not packet.is_discard
        ]
        if not packets:
            raise ValueError("the file holds no video frame")
        packets.sort()
        self._pts = np.asarray([pts for pts, _ in packets], dtype=np.int64)
        self._keys = np.asarray([pts for pts, key in packets if key] or [self._pts[0]], dtype=np.int64)
        self.times = self._pts * float(self._stream.time_base or 0)
        # One generator lives through all seeks: PyAV leaks a packet with each one that is dropped before its end.
        self._packets: Iterator[Any] | None = None
        self._decoded: deque[Any] = deque()  # frames of the packet decoded last that were not asked for yet
        self._last = np.iinfo(np.int64).min  # presentation time of the frame decoded last

    def frames(self, indices: np.ndarray) -> np.ndarray:
        found = {index: self._frame(int(self._pts[index])) for index in sorted({int(i) for i in indices})}
        return np.stack([found[int(i)] for i in indices])

    def close(self) -> None:
        # Container and streams refer to each other: left to the garbage collector, tens of megabytes pile up.
        self._decoded.clear()
        if self._packets is not None:
            self._container.seek(int(self._keys[-1]), stream=self._stream, backward=True)
            deque(self._packets, maxlen=0)
            self._packets = None
        self._container.close()

    def _frame(self, pts: int) -> np.ndarray:
        key = int(self._keys[max(int(np.searchsorted(self._keys, pts, side="right")) - 1, 0)])
        ended = self._packets is None and not self._decoded
        if ended or self._last >= pts or self._skips(key):
            self._container.seek(key, stream=self._stream, backward=True)
            self._decoded.clear()
            if self._packets is None:
                self._packets = self._container.demux(self._stream)
        while frame := self._next():
            if frame.pts is None:
                continue
            self._last = frame.pts
            if frame.pts >= pts:
                return self._rgb(frame)
        raise ValueError(f"the stream ends before its frame at {pts * float(self._stream.time_base):.3f} s")

    def _skips(self, key: int) -> bool:
        """Whether seeking to a keyframe is cheaper than decoding on: the decoder starts with some frames of delay."""
        if key <= self._last:
            return False
        here, there = np.searchsorted(self._pts, (self._last, key))
        return bool(there - here > _DELAY)

    def _next(self) -> Any:
        """The next frame in order of presentation, `None` at the end."""
        while not self._decoded and self._packets is not None:
            packet = next(self._packets, None)
            if packet is not None:
                self._decoded.extend(packet.decode())
            if packet is None or not packet.size:  # the last packet is empty and makes the decoder give what it holds
                next(self._packets, None)
                self._packets = None
        return self._decoded.popleft() if self._decoded else None

    def _rgb(self, frame: Any) -> np.ndarray:
        try:
            return np.asarray(self._converter.reformat(frame, **self._convert_options).to_ndarray())
        except TypeError:
            if "threads" not in self._convert_options:
                raise
            del self._convert_options["threads"]  # older PyAV has no such choice and uses one
            return self._rgb(frame)


class DecordReader:
    """decord on the CPU; fast on short windows, cannot open AV1, has no aarch64 wheel."""

    name = "decord"
    codec = ""

    def __init__(self, path: str, device: str, threads: int) -> None:
        import decord

        self._reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=threads)
        stamps = self._reader.get_frame_timestamp(range(len(self._reader)))
        self.times = np.asarray(stamps, dtype=np.float64)[:, 0]

    def frames(self, indices: np.ndarray) -> np.ndarray:
        return np.asarray(self._reader.get_batch([int(i) for i in indices]).asnumpy())

    def close(self) -> None:
        del self._reader


class TorchCodecReader:
    """torchcodec; the only one of the three that may decode on a device."""

    name = "torchcodec"

    def __init__(self, path: str, device: str, threads: int) -> None:
        module: Any = importlib.import_module("torchcodec.decoders")
        self._decoder: Any = module.VideoDecoder(path, device=device, num_ffmpeg_threads=threads)
        self.codec = str(self._decoder.metadata.codec or "")
        count = len(self._decoder)
        # Its public interface finds the frame shown at a time, not the nearest one, so the times are read here.
        self.times = packet_times(path)
        if len(self.times) != count:
            self.times = np.arange(count) / float(self._decoder.metadata.average_fps)

    def frames(self, indices: np.ndarray) -> np.ndarray:
        batch = self._decoder.get_frames_at(indices=[int(i) for i in indices]).data
        return np.asarray(batch.permute(0, 2, 3, 1).contiguous().cpu().numpy())

    def close(self) -> None:
        del self._decoder


def packet_times(path: str) -> np.ndarray:
    """Presentation times of all frames in seconds, ascending, (N,) float64; decodes nothing."""
    import av

    with av.open(path) as container:
        stream = container.streams.video[0]
        pts = [p.pts for p in container.demux(stream) if p.pts is not None and p.size and not p.is_discard]
        return np.asarray(sorted(pts), dtype=np.float64) * float(stream.time_base or 0)


@dataclass(frozen=True)
class Decoder:
    """How to open a file with a decoder, the module it needs, and how to get it."""

    open: Callable[[str, str, int], FrameReader]
    module: str
    install: str


DECODERS: dict[str, Decoder] = {
    "pyav": Decoder(PyAVReader, "av", "pip install av"),
    "torchcodec": Decoder(
        TorchCodecReader,
        "torchcodec.decoders",
        "pip install torchcodec, which also needs FFmpeg's shared libraries",
    ),
    "decord": Decoder(DecordReader, "decord", "pip install decord"),
}


def installed(name: str) -> bool:
    """Whether the decoder's library is installed; does not import it."""
    return importlib.util.find_spec(DECODERS[name].module.partition(".")[0]) is not None


@functools.cache
def defect(name: str) -> str:
    """Why the installed library cannot be imported; empty if it can. Tried once: a failing import is slow."""
    try:
        importlib.import_module(DECODERS[name].module)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return ""
