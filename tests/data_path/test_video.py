from __future__ import annotations

import logging
import pickle
from pathlib import Path

import av
import numpy as np
import pytest

from vla_backend import VideoContext
from vla_train.data import decoders, video
from vla_train.data.errors import DataError
from vla_train.data.video import close_readers, frame_count, read_frames, resolve_decoder

FPS, COUNT = 20, 60


def write_video(path: Path, codec: str, **options: str) -> Path:
    """COUNT frames; the grey of frame i is 4 i, with a red corner."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.options = options
        for index in range(COUNT):
            frame = np.full((64, 96, 3), 4 * index, dtype=np.uint8)
            frame[:16, :16] = (250, 0, 0)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def shown(frames: np.ndarray) -> list[int]:
    return [round(float(frame[40:, 40:].mean()) / 4) for frame in frames]


@pytest.fixture(scope="module")
def h264(tmp_path_factory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "h264.mp4", "libx264", g="2", crf="10")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory) -> Path:
    """One keyframe in 40 and B frames."""
    path = tmp_path_factory.mktemp("video") / "sparse.mp4"
    return write_video(path, "libx264", g="40", bf="3", crf="10")


@pytest.fixture(scope="module")
def av1(tmp_path_factory) -> Path:
    encoder = next((name for name in ("libsvtav1", "libaom-av1") if name in av.codecs_available), None)
    if encoder is None:
        pytest.skip("this PyAV has no AV1 encoder")
    speed = {"preset": "12"} if encoder == "libsvtav1" else {"cpu-used": "8"}
    return write_video(tmp_path_factory.mktemp("video") / "av1.mp4", encoder, crf="10", **speed)


@pytest.fixture
def context(request) -> VideoContext:
    name = request.param
    if not decoders.installed(name) or decoders.defect(name):
        pytest.skip(f"{name} is not installed, or does not load here")
    return VideoContext((name,))


every_decoder = pytest.mark.parametrize("context", list(decoders.DECODERS), indirect=True)


@every_decoder
@pytest.mark.parametrize("name", ["h264", "sparse"])
def test_any_order_and_repeats(context, name, request):
    path = request.getfixturevalue(name)
    wanted = [7, 3, 59, 0, 0, 58, 41, 39, 40, 12]
    frames = read_frames(path, np.array(wanted) / FPS, context)
    assert frames.shape == (10, 64, 96, 3)
    assert frames.dtype == np.uint8
    assert shown(frames) == wanted
    assert shown(read_frames(path, np.arange(20, 29) / FPS, context)) == list(range(20, 29))
    assert shown(read_frames(path, np.arange(29, 34) / FPS, context)) == list(range(29, 34))
    assert shown(read_frames(path, [25 / FPS], context)) == [25]
    assert frame_count(path, context) == COUNT


@every_decoder
def test_colours_are_rgb(context, h264):
    red = read_frames(h264, [0.5], context)[0, :12, :12].reshape(-1, 3).mean(axis=0)
    assert red[0] > 200
    assert red[1:].max() < 60


@every_decoder
def test_nearest_frame_is_taken(context, h264):
    assert shown(read_frames(h264, [0.0, 0.024, 0.026, 0.074, 3.9, -1.0], context)) == [0, 0, 1, 1, 59, 0]


@every_decoder
def test_same_frames_from_every_decoder(context, sparse):
    times = np.array([1, 39, 40, 55]) / FPS
    ours = read_frames(sparse, times, context).astype(int)
    assert np.abs(ours - read_frames(sparse, times, VideoContext(("pyav",)))).max() <= 2


def test_automatic_choice_falls_to_a_decoder_that_can(av1, caplog, monkeypatch):
    class Unable:
        def __init__(self, path: str, device: str, threads: int) -> None:
            raise RuntimeError("cannot find video stream")

    monkeypatch.setitem(decoders.DECODERS, "decord", decoders.Decoder(Unable, "av", "pip install decord"))
    monkeypatch.setattr(video, "_announced", set())
    close_readers()
    context = resolve_decoder("auto", VideoContext(("decord", "pyav")))
    assert context.decoders == ("decord", "pyav")
    with caplog.at_level(logging.INFO, "vla_train"):
        assert shown(read_frames(av1, [0.5, 1.0], context)) == [10, 20]
        close_readers()
        read_frames(av1, [0.5], context)
    (message,) = [record.message for record in caplog.records if "with pyav" in record.message]
    assert "av1" in message
    assert message.endswith("with pyav (not able: decord: cannot find video stream)")
    with pytest.raises(DataError, match=r"no decoder can open .*av1\.mp4\n  why: decord: cannot find(?s:.*)pyav"):
        read_frames(av1, [0.5], VideoContext(("decord",)))


def test_explicit_decoder(monkeypatch):
    context = VideoContext(("pyav",), threads=2)
    assert resolve_decoder("pyav", VideoContext(("decord", "pyav"), threads=2)) == context
    with pytest.raises(DataError, match=r"unknown video decoder 'opencv'(?s:.*)pyav, torchcodec, decord"):
        resolve_decoder("opencv", context)
    absent = decoders.Decoder(decoders.DecordReader, "no_such_library", "pip install decord")
    monkeypatch.setitem(decoders.DECODERS, "decord", absent)
    with pytest.raises(DataError, match=r"'decord' is not installed(?s:.*)fix: pip install decord"):
        resolve_decoder("decord", context)
    assert resolve_decoder("auto", VideoContext(("decord", "pyav", "of another vendor"))).decoders == ("pyav",)
    with pytest.raises(DataError, match=r"no video decoder is installed(?s:.*)pip install av"):
        resolve_decoder("auto", VideoContext(("decord",)))


def test_explicit_decoder_that_does_not_load(monkeypatch):
    monkeypatch.setattr(video, "defect", lambda name: "libavutil.so.60: cannot open")
    with pytest.raises(DataError, match=r"installed but does not load\n  why: libavutil"):
        resolve_decoder("pyav", VideoContext(("pyav",)))


def test_open_readers_are_bounded_and_reused(tmp_path, h264):
    close_readers()
    context = VideoContext(("pyav",))
    for index in range(video._READERS_KEPT + 4):
        path = tmp_path / f"{index}.mp4"
        path.symlink_to(h264)
        read_frames(path, [0.0], context)
    assert len(video._readers) == video._READERS_KEPT
    newest = next(reversed(video._readers.values()))
    read_frames(path, [1.0], context)
    assert next(reversed(video._readers.values())) is newest
    close_readers()
    assert not video._readers


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"gone\.mp4 does not exist(?s:.*)skip_missing_episodes"):
        read_frames(tmp_path / "gone.mp4", [0.0], VideoContext(("pyav",)))


def test_truncated_file_is_an_error_not_another_frame(tmp_path, h264):
    path = tmp_path / "cut.mp4"
    whole = h264.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.mp4"):
        read_frames(path, [2.9], VideoContext(("pyav",)))


def test_a_video_much_shorter_than_its_table(h264):
    with pytest.raises(DataError, match=r"ends at 2\.95 s\n  why: .* asks for 4\.00 s"):
        read_frames(h264, [0.0, 4.0], VideoContext(("pyav",)))


def test_errors_cross_processes():
    error = pickle.loads(pickle.dumps(DataError("a", why="b", fix="c")))
    assert (str(error), error.fix) == ("a\n  why: b\n  fix: c", "c")
