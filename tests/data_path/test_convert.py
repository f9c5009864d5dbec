"""`vla data convert`: other formats with the same samples, other videos with the same moments."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

from vla_dit4dit.data.dataset import build_dataset
from vla_train.cli import main
from vla_train.data.cache import all_files
from vla_train.data.check import check_dataset
from vla_train.data.check.videos import read_header
from vla_train.data.config import DatasetConfig
from vla_train.data.convert import Options, convert_dataset, shared
from vla_train.data.convert.output import MARKER
from vla_train.data.convert.streams import Encoding
from vla_train.data.errors import DataError
from vla_train.data.files import Clip
from vla_train.data.lerobot import LeRobotDataset

V30, V21 = Options("v3.0"), Options("v2.1")
CAMERAS = ("observation.images.image", "observation.images.wrist_image")
VIDEO = "videos/chunk-000/observation.images.image/episode_000001.mp4"


@pytest.fixture
def build(config, pyav, tmp_path):
    def make(name: str, **changes: Any):
        settings = {
            "root": str(tmp_path),
            "datasets": [DatasetConfig(name, 1.0, "libero_franka")],
            "image_size": [16, 16],
        }
        return build_dataset(config(**settings, **changes), pyav)

    return make


def assert_same(left: Any, right: Any) -> None:
    assert len(left) == len(right)
    assert left.statistics == right.statistics
    for index in range(0, len(left), 3):
        one, other = left[index], right[index]
        for key in ("images", "action", "action_mask", "state"):
            assert np.array_equal(one[key], other[key]), (index, key)
        assert one["lang"] == other["lang"]
        assert one["sample_id"].split("/")[1:] == other["sample_id"].split("/")[1:]


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in all_files(folder)}


def record(path: Path, count: int, rate: int = 10, codec: str = "libx264", **options: str) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for i in range(count):
            frame = np.full((64, 64, 3), 10 * i, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def test_there_and_back_without_a_changed_bit(copy_set, build, tmp_path):
    folder = copy_set("plain")
    (folder / "meta" / "embodiment.json").write_text("{}")
    (folder / "LICENSE").write_text("free")
    before = state_of(folder)
    assert convert_dataset(folder, tmp_path / "three", V30) == []
    assert convert_dataset(tmp_path / "three", tmp_path / "two", V21) == []
    assert state_of(folder) == before
    plain = build("plain")
    for name in ("three", "two"):
        assert_same(plain, build(name))
        report = check_dataset(tmp_path / name, deep=True)
        assert [finding.kind for finding in report.findings] == ["constant"]
        for kept in ("meta/modality.json", "meta/embodiment.json", "LICENSE"):
            assert (tmp_path / name / kept).read_bytes() == (folder / kept).read_bytes()
    originals = [path.relative_to(folder) for path in all_files(folder)]
    assert {str(path) for path in originals} <= {
        str(p.relative_to(tmp_path / "two")) for p in all_files(tmp_path / "two")
    }


def test_layout_of_v30(copy_set, tmp_path):
    folder, out = copy_set("plain"), tmp_path / "three"
    convert_dataset(folder, out, V30)
    assert sorted(path.relative_to(out).as_posix() for path in all_files(out)) == [
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/modality.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        *(f"videos/{camera}/chunk-000/file-000.mp4" for camera in CAMERAS),
    ]
    info = json.loads((out / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == ("v3.0", 2, 40)
    assert info["data_path"] == "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    assert info["video_path"] == "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    assert info["features"]["action"]["fps"] == 10
    assert "total_videos" not in info
    file = pq.ParquetFile(out / "data/chunk-000/file-000.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [20, 20]
    assert file.read()["index"].to_pylist() == list(range(40))
    rows = pq.read_table(out / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows] == [(0, 20), (20, 40)]
    spans = [(row[f"videos/{CAMERAS[0]}/from_timestamp"], row[f"videos/{CAMERAS[0]}/to_timestamp"]) for row in rows]
    np.testing.assert_allclose(spans, [(0, 2), (2, 4)])
    stats = json.loads((out / "meta" / "stats.json").read_text())
    actions = np.array(file.read()["action"].to_pylist())
    np.testing.assert_allclose(stats["action"]["max"], actions.max(axis=0), rtol=1e-6)
    assert stats["action"]["count"] == [40]
    np.testing.assert_allclose(rows[1]["stats/action/mean"], actions[20:].mean(axis=0), rtol=1e-6)


def test_files_are_filled_up_to_their_limit(copy_set, build, tmp_path, monkeypatch):
    copy_set("plain")
    monkeypatch.setattr(shared, "VIDEO_MB", 1e-3)
    monkeypatch.setattr(shared, "TABLE_MB", 1e-3)
    convert_dataset(tmp_path / "plain", tmp_path / "three", V30)
    assert len(list((tmp_path / "three" / "data").rglob("*.parquet"))) == 2
    assert len(list((tmp_path / "three" / "videos").rglob("*.mp4"))) == 4
    assert_same(build("plain"), build("three"))


def test_videos_that_do_not_fit_together_get_files_of_their_own(copy_set, build, tmp_path):
    folder = copy_set("plain")
    record(folder / VIDEO, 20, profile="baseline")
    convert_dataset(folder, tmp_path / "three", V30)
    assert len(list((tmp_path / "three" / "videos" / CAMERAS[0]).rglob("*.mp4"))) == 2
    assert len(list((tmp_path / "three" / "videos" / CAMERAS[1]).rglob("*.mp4"))) == 1
    assert_same(build("plain"), build("three"))


@pytest.mark.parametrize("to", ["v2.1", "v3.0"])
def test_encoding_anew(copy_set, build, tmp_path, to):
    folder = copy_set("plain")
    record(folder / VIDEO, 21, g="40", bf="3")
    notes = convert_dataset(folder, tmp_path / "fast", Options(to, Encoding("h264", 2, 10)))
    assert any("differ a little" in note for note in notes)
    for path in (tmp_path / "fast" / "videos").rglob("*.mp4"):
        header = read_header(path)
        assert header.keyframes == pytest.approx(len(header.times) / 2, abs=1)
    plain, fast = build("plain"), build("fast")
    assert plain.statistics == fast.statistics
    for episode, step in ((0, 0), (0, 19), (1, 0), (1, 7), (1, 19)):
        one, other = (
            dataset.sources[0].window(dataset.sources[0].episodes[episode], step) for dataset in (plain, fast)
        )
        for camera, frames in one.video.items():
            assert np.abs(frames.astype(int) - other.video[camera]).mean() < 2
        np.testing.assert_array_equal(one.state["x"], other.state["x"])
    info = json.loads((tmp_path / "fast" / "meta" / "info.json").read_text())
    assert info["codebase_version"] == to
    back = Options("v2.1" if to == "v3.0" else "v3.0")
    convert_dataset(tmp_path / "fast", tmp_path / "back", back)
    assert_same(build("fast"), build("back"))


def test_an_interrupted_conversion_goes_on(copy_set, build, tmp_path):
    folder, out = copy_set("plain"), tmp_path / "out"
    options = Options("v3.0", Encoding("h264", 2, 20))
    done: list[int] = []

    def stop_after(count: int):
        def step() -> None:
            done.append(1)
            if len(done) == count:
                raise KeyboardInterrupt

        return lambda total: step

    with pytest.raises(KeyboardInterrupt):
        convert_dataset(folder, out, options, progress=stop_after(5))
    assert (out / MARKER).is_file()
    with pytest.raises(DataError, match="is not a LeRobot dataset"):
        LeRobotDataset(out)
    first = state_of(out)
    with pytest.raises(DataError, match=r"another conversion(?s:.*)encoding"):
        convert_dataset(folder, out, Options("v3.0", Encoding("h264", 4, 20)))
    (out / "data" / "chunk-000" / ".file-000.parquet.unfinished").write_bytes(b"half")
    convert_dataset(folder, out, options)
    assert not (out / MARKER).exists()
    assert not [path for path in all_files(out) if path.name.startswith(".") or ".parts" in str(path)]
    table = str(out / "data/chunk-000/file-000.parquet")
    assert state_of(out)[table] == first[table]  # not written again
    convert_dataset(folder, tmp_path / "whole", options)
    assert_same(build("out"), build("whole"))


def test_nothing_is_overwritten(copy_set, tmp_path):
    folder = copy_set("plain")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match=r"exists already(?s:.*)nothing is overwritten"):
        convert_dataset(folder, tmp_path / "full", V30)
    convert_dataset(folder, tmp_path / "out", V30)
    with pytest.raises(DataError, match="exists already"):
        convert_dataset(folder, tmp_path / "out", V30)
    with pytest.raises(DataError, match="lies in"):
        convert_dataset(folder, folder / "v3", V30)
    with pytest.raises(DataError, match=r"is v2\.1 already"):
        convert_dataset(folder, tmp_path / "new", V21)


def test_missing_episodes(copy_set, build, tmp_path):
    folder = copy_set("plain")
    next((folder / "data").rglob("episode_000000.parquet")).unlink()
    with pytest.raises(DataError, match=r"1 of 2 listed episodes lack files(?s:.*)--skip-missing"):
        convert_dataset(folder, tmp_path / "three", V30)
    assert not (tmp_path / "three").exists()
    notes = convert_dataset(folder, tmp_path / "three", Options("v3.0", skip_missing=True))
    assert notes == ["1 episodes are numbered anew from 0"]
    ours, plain = build("three"), build("plain", skip_missing_episodes=True)
    assert [reference.name for reference in ours.episodes()] == ["three/0"]
    for key in ("images", "action", "state"):
        assert np.array_equal(ours[3][key], plain[3][key])


def test_standard_columns_are_filled_in(copy_set, build, tmp_path):
    folder = copy_set("plain")
    for path in (folder / "data").rglob("*.parquet"):
        table = pq.read_table(path).drop_columns(["timestamp", "task_index", "index", "episode_index", "frame_index"])
        pq.write_table(table, path)
    convert_dataset(folder, tmp_path / "three", V30)
    table = pq.read_table(tmp_path / "three" / "data/chunk-000/file-000.parquet")
    assert table["episode_index"].to_pylist() == [0] * 20 + [1] * 20
    assert table["task_index"].to_pylist() == [0] * 20 + [1] * 20
    np.testing.assert_allclose(table["timestamp"].to_pylist()[20:23], [0, 0.1, 0.2], rtol=1e-6)
    ours, plain = build("three"), build("plain")
    for key in ("images", "action", "state"):
        assert np.array_equal(ours[3][key], plain[3][key])


def test_a_clip_that_does_not_begin_with_a_keyframe(copy_set, tmp_path):
    from vla_train.data.convert.streams import cut, encode

    record(tmp_path / "long.mp4", 20, g="40", bf="0")
    clip = Clip(tmp_path / "long.mp4", 0.5, 1.0)
    with pytest.raises(DataError, match=r"cannot be cut at 0\.500 s(?s:.*)--gop"):
        cut(clip, tmp_path / "cut.mp4")
    encode(clip, tmp_path / "encoded.mp4", Encoding("h264", 1, 10))
    header = read_header(tmp_path / "encoded.mp4")
    np.testing.assert_allclose(header.times, np.arange(5) / 10, atol=1e-9)
    assert header.keyframes == 5


def test_a_damaged_source_is_named(copy_set, tmp_path):
    folder = copy_set("plain")
    (folder / VIDEO).write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"episode_000001\.mp4"):
        convert_dataset(folder, tmp_path / "fast", Options(encoding=Encoding("h264", 2, 18)))
    shutil.rmtree(tmp_path / "fast")
    with pytest.raises(DataError, match=r"episode_000001\.mp4"):
        convert_dataset(folder, tmp_path / "fast", V30)


def test_command(copy_set, tmp_path, capsys):
    folder, out = str(copy_set("plain")), str(tmp_path / "out")
    assert main(["data", "convert", folder, out]) == 2
    assert main(["data", "convert", folder, out, "--codec", "h264", "--to", "v3.0"]) == 2
    assert main(["data", "convert", folder, out, "--gop", "2", "--codec", "mpeg9"]) == 2
    error = capsys.readouterr().err
    for part in ("Nothing to convert", "--codec and --crf need --gop", "unknown codec 'mpeg9'"):
        assert part in error
    assert main(["data", "convert", folder, out, "--to", "v3.0", "--gop", "2"]) == 0
    assert "differ a little" in capsys.readouterr().out
    assert main(["data", "check", out]) == 0
