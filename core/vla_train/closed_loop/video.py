"""Videos of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np

#: Small pictures are enlarged by a whole factor to about this height, so that players show something.
HEIGHT = 288


def write_video(path: Path, frames: Sequence[np.ndarray], fps: int) -> None:
    """Writes frames (H, W, 3) uint8 as h264; the folder is made if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    factor = max(1, round(HEIGHT / frames[0].shape[0]))
    height, width = (size * factor // 2 * 2 for size in frames[0].shape[:2])
    with av.open(str(path), "w") as container:
        stream = container.add_stream("h264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"crf": "23", "preset": "veryfast"}
        for frame in frames:
            large = np.ascontiguousarray(frame.repeat(factor, 0).repeat(factor, 1)[:height, :width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(large, format="rgb24")))
        container.mux(stream.encode(None))
