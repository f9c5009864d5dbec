"""Ten frames through the decoder that training would use."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from vla_backend import VideoContext
from vla_backend.errors import BackendError
from vla_train.data.decoders import DECODERS, defect, installed
from vla_train.data.grey_video import SIDE, write_grey_video


class DecodeError(BackendError):
    """No decoder works, or frames come out wrong."""


def decode_own(decoder: str, context: VideoContext, count: int) -> tuple[str, str]:
    """Write a video whose frames grow brighter, read it back; answers decoder and finding.

    Raises:
        DecodeError: none is able, or the frames are not those that were written.
    """
    name = choose_decoder(decoder, context)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "check.mp4"
        written = write_grey_video(path, count)
        got = _read(name, context, path, count)
    if got.shape != (count, SIDE, SIDE, 3):
        raise DecodeError(f"{name} gave frames of shape {got.shape}.", why=f"{(count, SIDE, SIDE, 3)} were written")
    error = float(np.abs(got.mean(axis=(1, 2, 3)) - written).max())
    if error > 3:
        raise DecodeError(
            f"{name} gave other frames than were written.",
            why=f"their brightness is off by up to {error:.0f} of 255",
            fix=f"reinstall it ({DECODERS[name].install}) or set data.decoder to another",
        )
    return name, f"{name} gave {count} frames back in order"


def decode_theirs(name: str, context: VideoContext, path: Path, count: int) -> str:
    """Ten frames spread over a file of the configured data.

    Raises:
        DecodeError: it does not open or ends early.
    """
    try:
        frames = _read(name, context, path, count)
    except Exception as error:
        raise DecodeError(
            f"{name} cannot read {path}.", why=f"{type(error).__name__}: {error}", fix="`vla data check` looks at all"
        ) from error
    return f"{count} frames of {frames.shape[1]} x {frames.shape[2]} from {path.name}"


def choose_decoder(decoder: str, context: VideoContext) -> str:
    """The decoder asked for, or the first of the backend's order that can be imported.

    Raises:
        DecodeError: none; the message says why each is not able.
    """
    why = []
    for name in context.decoders if decoder == "auto" else (decoder,):
        problem = defect(name) if installed(name) else "not installed"
        if not problem:
            return name
        why.append(f"{name}: {problem}")
    raise DecodeError("No video decoder works.", why="; ".join(why), fix=f"{DECODERS['pyav'].install}")


def _read(name: str, context: VideoContext, path: Path, count: int) -> np.ndarray:
    reader = DECODERS[name].open(str(path), context.device, context.threads)
    try:
        return reader.frames(np.linspace(0, len(reader.times) - 1, count).round().astype(int))
    finally:
        reader.close()
