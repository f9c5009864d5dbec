"""A small video of known content, for those who ask whether a decoder works."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import av
import numpy as np

#: Pixels of a side. decord fails at a width of 48, and reads those from 64 on.
SIDE: Final = 64
RATE: Final = 10


def write_grey_video(path: Path, count: int) -> np.ndarray:
    """Writes `count` grey frames, each brighter than the one before, `RATE` a second.

    Returns:
        Their brightness, (count,) float64 in 0..255; decoders give it back within 3.
    """
    brightness = np.linspace(20, 200, count).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        stream.bit_rate = 2_000_000
        for value in brightness:
            picture = np.full((SIDE, SIDE, 3), value, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return brightness.astype(float)
