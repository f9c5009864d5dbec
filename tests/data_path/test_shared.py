"""LeRobot v3.0, where files hold several episodes: the samples are those of the v2.1 original, bit for bit."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vla_dit4dit.data.dataset import build_dataset
from vla_train.data import episode_tables
from vla_train.data.check import check_dataset
from vla_train.data.config import DatasetConfig
from vla_train.data.errors import DataError
from vla_train.data.files import Clip
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.video import clip_frames, read_clip

FEATURES = ("observation.images.image", "observation.images.wrist_image")
DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
LENGTH, FPS = 20, 10


def concatenate(paths: list[Path], out: Path) -> None:
    out.parent.mkdir(parents=True)
    with av.open(str(out), "w") as target:
        stream: Any = None
        for number, path in enumerate(paths):
            with av.open(str(path)) as source:
                video = source.streams.video[0]
                if stream is None:
                    make = getattr(target, "add_stream_from_template", None)
                    stream = make(video) if make else target.add_stream(template=video)
                offset = round(number * LENGTH / FPS / video.time_base)
                for packet in source.demux(video):
                    if packet.dts is not None:
                        packet.pts, packet.dts, packet.stream = packet.pts + offset, packet.dts + offset, stream
                        target.mux(packet)


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / name)


@pytest.fixture
def shared(copy_set, tmp_path) -> Path:
    """The small LIBERO set as LeRobot's own converter writes it: one row group, tasks as a data frame's index."""
    source, folder = copy_set("plain"), tmp_path / "shared"
    info = json.loads((source / "meta" / "info.json").read_text())
    info |= {
        "codebase_version": "v3.0",
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    shutil.copy(source / "meta" / "modality.json", folder / "meta")
    tables = [pq.read_table(path) for path in sorted((source / "data").rglob("*.parquet"))]
    (folder / DATA).parent.mkdir(parents=True)
    pq.write_table(pa.concat_tables(tables), folder / DATA)
    tasks = [json.loads(line) for line in (source / "meta" / "tasks.jsonl").read_text().splitlines()]
    texts = pa.array([task["task"] for task in tasks], type=pa.large_string())
    numbers = [task["task_index"] for task in tasks]
    pq.write_table(pa.table({"task_index": numbers, "__index_level_0__": texts}), folder / "meta" / "tasks.parquet")
    for feature in FEATURES:
        videos = sorted(source.rglob(f"{feature}/*.mp4"))
        concatenate(videos, folder / "videos" / feature / "chunk-000" / "file-000.mp4")
    listed = [json.loads(line) for line in (source / "meta" / "episodes.jsonl").read_text().splitlines()]
    write(folder, EPISODES, [listing_row(entry) for entry in listed])
    return folder


def listing_row(entry: dict[str, Any]) -> dict[str, Any]:
    index = entry["episode_index"]
    place: dict[str, Any] = {"data/chunk_index": 0, "data/file_index": 0}
    for feature in FEATURES:
        place |= {f"videos/{feature}/chunk_index": 0, f"videos/{feature}/file_index": 0}
        place |= {
            f"videos/{feature}/from_timestamp": index * LENGTH / FPS,
            f"videos/{feature}/to_timestamp": (index + 1) * LENGTH / FPS,
        }
    return {**entry, **place, "dataset_from_index": index * LENGTH, "stats/action/min": [0.0]}


@pytest.fixture
def build(config, pyav, tmp_path):
    def make(*names: str, split: str = "train", **changes: Any):
        entries = [DatasetConfig(name, 1.0, "libero_franka") for name in names]
        return build_dataset(config(root=str(tmp_path), datasets=entries, check="quick", **changes), pyav, split)

    return make


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    arrays = all(np.array_equal(left[key], right[key]) for key in ("images", "action", "action_mask", "state"))
    return arrays and left["lang"] == right["lang"]


def test_samples_and_statistics_are_those_of_the_original(shared, build):
    ours, plain = build("shared"), build("plain")
    assert len(ours) == len(plain) == 40
    assert all(same(ours[i], plain[i]) for i in range(40))
    assert ours.statistics == plain.statistics
    held, expected = (build(name, split="eval", holdout_episodes=1) for name in ("shared", "plain"))
    assert held.statistics == expected.statistics
    assert same(held[3], expected[3])
    assert [reference.name for reference in held.episodes()] == ["shared/1"]


def test_the_ends_of_episodes_do_not_run_into_their_neighbours(shared, build):
    ours, plain = build("shared"), build("plain")
    for dataset in (ours, plain):
        dataset.config.mask_padded_actions = True
    episodes = ours.sources[0].episodes
    for episode, step in ((0, 19), (0, 15), (1, 0), (1, 19)):
        assert same(ours.sample(0, episodes[episode], step), plain.sample(0, episodes[episode], step))


def test_a_mixture_of_both_formats(shared, build):
    mixed = build("shared", "plain")
    assert len(mixed) == 80
    assert mixed.statistics["franka"]["num_transitions"] == 80
    alone = build("plain").statistics["franka"]["action"]
    np.testing.assert_allclose(mixed.statistics["franka"]["action"]["std"], alone["std"], rtol=1e-6, atol=1e-9)
    assert {mixed[i]["sample_id"].split("/")[0] for i in range(20)} == {"shared", "plain"}


def test_row_groups_are_read_once(shared, monkeypatch):
    dataset = LeRobotDataset(shared)
    reads: list[int] = []
    read = episode_tables.SharedTable.read
    monkeypatch.setattr(episode_tables.SharedTable, "read", lambda self, i: reads.append(i) or read(self, i))
    for episode in [*dataset.listed, *dataset.listed]:
        assert dataset.table(episode)["index"].tolist() == list(range(episode.index * 20, episode.index * 20 + 20))
    assert reads == [0]
    again = pickle.loads(pickle.dumps(dataset))
    assert again.table(again.listed[1])["frame_index"][5] == 5
    assert reads == [0, 1]


def test_an_episode_across_row_groups(shared):
    pq.write_table(pq.read_table(shared / DATA), shared / DATA, row_group_size=15)
    for order in ((0, 1), (1, 0)):
        dataset = LeRobotDataset(shared)
        for number in order:
            table = dataset.table(dataset.listed[number])
            assert table["frame_index"].tolist() == list(range(20))
            assert set(table["episode_index"].tolist()) == {number}


def test_tables_in_memory_are_bounded(shared, monkeypatch):
    monkeypatch.setattr(episode_tables, "_BYTES_KEPT", 1)
    dataset = LeRobotDataset(shared)
    for episode in [*dataset.listed, *dataset.listed]:
        dataset.table(episode)
        assert len(dataset._tables._kept) == 1


def test_frames_of_a_clip():
    times = np.arange(10) / 10
    assert clip_frames(Clip(Path("x")), times)[0] == 0
    first, mine = clip_frames(Clip(Path("x"), 0.3 + 1e-9, 0.6 - 1e-9), times)
    assert first == 3
    np.testing.assert_allclose(mine, [0, 0.1, 0.2], atol=1e-6)
    assert len(clip_frames(Clip(Path("x"), 5.0, 6.0), times)[1]) == 0


def test_a_place_beyond_the_file(shared, pyav):
    path = shared / "videos" / FEATURES[0] / "chunk-000" / "file-000.mp4"
    with pytest.raises(DataError, match=r"no frame between 9\.00 and 10\.00 s(?s:.*)ends at 3\.90 s"):
        read_clip(Clip(path, 9.0, 10.0), [0.0], pyav)
    with pytest.raises(DataError, match=r"ends at 1\.90 s of the episode(?s:.*)asks for 3\.00 s"):
        read_clip(Clip(path, 2.0, 4.0), [3.0], pyav)
    with pytest.raises(DataError, match=r"ends at 1\.90 s\n(?s:.*)asks for 3\.00 s"):
        read_clip(Clip(path, 0.0, 2.0), [3.0], pyav)


def test_damage_is_named(shared, build):
    assert not check_dataset(shared).errors
    rows = pq.read_table(shared / EPISODES).to_pylist()
    rows[1][f"videos/{FEATURES[0]}/from_timestamp"] = 3.0
    write(shared, EPISODES, rows)
    (finding,) = check_dataset(shared).errors
    assert finding.kind == "short-video"
    assert finding.what.startswith("episode 1: 10 frames to 0.90 s; the table has 20 rows to 1.90 s")
    rows[1]["length"] = 25
    write(shared, EPISODES, rows)
    assert {finding.kind for finding in check_dataset(shared).errors} == {"rows", "short-video"}
    shutil.rmtree(shared / "videos" / FEATURES[1])
    (shared / "videos" / FEATURES[0] / "chunk-000" / "file-000.mp4").write_bytes(b"")
    kinds = [finding.kind for finding in check_dataset(shared).errors]
    assert sorted(kinds) == ["camera-without-files", "damaged-video", "rows"]
    with pytest.raises(DataError, match="no videos of camera 'wrist_image'"):
        build("shared")


def test_a_missing_file_takes_its_episodes_along(shared, build):
    rows = pq.read_table(shared / EPISODES).to_pylist()
    rows[0]["data/file_index"] = 7
    write(shared, EPISODES, rows)
    with pytest.raises(DataError, match=r"data/chunk-000/file-007\.parquet"):
        build("shared")
    assert [reference.name for reference in build("shared", skip_missing_episodes=True).episodes()] == ["shared/1"]


def test_listings_that_cannot_be_read(shared):
    tasks = (shared / "meta" / "tasks.parquet").read_bytes()
    write(shared, "meta/tasks.parquet", [{"task_index": 0}])
    with pytest.raises(DataError, match=r"tasks\.parquet lists no tasks"):
        LeRobotDataset(shared)
    (shared / "meta" / "tasks.parquet").write_bytes(tasks)
    rows = pq.read_table(shared / EPISODES).to_pylist()
    for row in rows:
        del row["length"]
    write(shared, EPISODES, rows)
    with pytest.raises(DataError, match="lacks the column 'length'"):
        LeRobotDataset(shared)
    (shared / EPISODES).write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot read .*meta/episodes"):
        LeRobotDataset(shared)
