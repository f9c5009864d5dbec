"""Datasets that are not what their metadata says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vla_dit4dit.data.batch import collate
from vla_dit4dit.data.dataset import build_dataset
from vla_train.data.config import DatasetConfig, RobotConfig
from vla_train.data.errors import DataError
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.tables import column_array


@pytest.fixture
def build(config, pyav, tmp_path):
    """A dataset from folders under `tmp_path`."""

    def make(*names: str, robot: str = "libero_franka", horizon: int = 8, split: str = "train", **changes: Any):
        entries = [DatasetConfig(name, 1.0, robot) for name in names or ("copy",)]
        return build_dataset(config(horizon, root=str(tmp_path), datasets=entries, **changes), pyav, split)

    return make


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tables(folder: Path, edit: Any) -> None:
    for path in sorted((folder / "data").rglob("*.parquet")):
        pq.write_table(edit(pq.read_table(path)), path)


def same(left: Any, right: Any) -> bool:
    return all(np.array_equal(left[key], right[key]) for key in ("images", "action", "state"))


def test_templates_with_the_episode_number_as_chunk_and_no_chunks(copy_set, build):
    folder = copy_set()
    edit_json(
        folder / "meta" / "info.json",
        codebase_version="v2.0",
        total_chunks=0,
        data_path="data/chunk-{episode_index:03d}/episode_{episode_index:06d}.parquet",
        video_path="videos/chunk-{episode_index:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    )
    copy_set("plain")
    assert same(build()[1], build("plain")[1])


def test_video_folder_named_otherwise(copy_set, build):
    folder = copy_set()
    (folder / "videos").rename(folder / "video")
    assert build()[0]["images"].shape == (5, 3, 224, 448)


def test_listed_camera_without_files_is_not_used(copy_set, build):
    folder = copy_set()
    info = json.loads((folder / "meta" / "info.json").read_text())
    info["features"]["observation.images.depth"] = info["features"]["observation.images.image"]
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    (folder / "meta" / "modality.json").unlink()
    robot = build(robot="auto").sources[0].robot
    assert robot.cameras == ("image", "wrist_image")


def test_needed_camera_without_files(copy_set, build):
    shutil.rmtree(copy_set() / "videos" / "chunk-000" / "observation.images.wrist_image")
    with pytest.raises(DataError, match=r"no videos of camera 'wrist_image'(?s:.*)primary_image"):
        build()


@pytest.mark.parametrize("kind", ["data", "videos"])
def test_listed_episode_missing_on_disk(copy_set, build, kind):
    folder = copy_set()
    victim = next((folder / kind).rglob("episode_000001.*"))
    victim.unlink()
    with pytest.raises(DataError, match=rf"1 of 2 listed episodes lack files(?s:.*){victim.name}(?s:.*)skip_missing"):
        build()
    dataset = build(skip_missing_episodes=True)
    assert [reference.name for reference in dataset.episodes()] == ["copy/0"]
    assert dataset.statistics["franka"]["num_transitions"] == 20


def test_vectors_stored_as_json_text(copy_set, build):
    plain = copy_set("plain")
    folder = copy_set()

    def as_text(table: pa.Table) -> pa.Table:
        for name in ("observation.state", "action"):
            column = pa.array([json.dumps(row) for row in table[name].to_pylist()])
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    edit_tables(folder, as_text)
    assert plain.name == "plain"
    left, right = build(), build("plain")
    assert same(left[3], right[3])
    np.testing.assert_allclose(
        left.statistics["franka"]["action"]["mean"], right.statistics["franka"]["action"]["mean"], rtol=1e-6
    )


def test_no_task_index_and_no_timestamp(copy_set, build):
    edit_tables(copy_set(), lambda table: table.drop_columns(["task_index", "index", "timestamp"]))
    copy_set("plain")
    left, right = build()[0], build("plain")[0]
    assert left["lang"] == right["lang"] == "put the bowl on the plate"
    assert same(left, right)


def test_table_with_fewer_rows_than_the_video_has_frames(copy_set, build):
    folder = copy_set()
    edit_tables(folder, lambda table: table.slice(0, 19))
    lines = [json.loads(line) | {"length": 19} for line in (folder / "meta/episodes.jsonl").read_text().splitlines()]
    (folder / "meta" / "episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    dataset = build()
    assert len(dataset) == 38
    last = dataset.sample(0, dataset.sources[0].episodes[0], 18)["images"]
    assert (last[0] == last[-1]).all()  # the surplus frame is not shown


def test_table_shorter_than_its_episode(copy_set, build):
    edit_tables(copy_set(), lambda table: table.slice(0, 15))
    with pytest.raises(DataError, match=r"episode_00000\d.parquet has 15 rows(?s:.*)20 steps"):
        build()[0]


def test_damaged_files_are_named(copy_set, build):
    folder = copy_set()
    video = folder / "videos/chunk-000/observation.images.image/episode_000000.mp4"
    video.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"no decoder can open .*episode_000000.mp4"):
        build()[0]
    (folder / "data/chunk-000/episode_000001.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"cannot read .*episode_000001.parquet"):
        build()


def test_empty_instruction_leaves_the_episode_out(copy_set, build):
    path = copy_set() / "meta" / "tasks.jsonl"
    path.write_text('{"task_index": 0, "task": ""}\n{"task_index": 1, "task": "open the middle drawer"}\n')
    dataset = build()
    assert [reference.name for reference in dataset.episodes()] == ["copy/1"]


def test_unknown_task_number(copy_set, build):
    (copy_set() / "meta" / "tasks.jsonl").write_text('{"task_index": 0, "task": "put the bowl on the plate"}\n')
    dataset = build()
    with pytest.raises(DataError, match="no task 1"):
        list(dataset.episode_samples(dataset.episodes()[1], 10))


def test_not_a_dataset(tmp_path, copy_set):
    with pytest.raises(DataError, match="the folder does not exist"):
        LeRobotDataset(tmp_path / "nowhere")
    folder = copy_set()
    edit_json(folder / "meta" / "info.json", codebase_version="v1.6")
    with pytest.raises(DataError, match=r"is a LeRobot v1\.6 dataset(?s:.*)convert"):
        LeRobotDataset(folder)
    edit_json(folder / "meta" / "info.json", codebase_version="v3.0")
    with pytest.raises(DataError, match=r"meta/episodes holds no parquet file"):
        LeRobotDataset(folder)
    (folder / "meta" / "info.json").write_text("{")
    with pytest.raises(DataError, match=r"info\.json is not JSON"):
        LeRobotDataset(folder)


def test_wrong_key_lists_name_what_exists(copy_set, build):
    copy_set()
    with pytest.raises(DataError, match=r"no state part 'left_arm'(?s:.*)gripper"):
        build(robot="mine", robots={"mine": RobotConfig(state_keys=["left_arm"])})
    with pytest.raises(DataError, match=r"no annotation 'human.validity'"):
        build(robot="mine", robots={"mine": RobotConfig(language_key="annotation.human.validity")})
    with pytest.raises(DataError, match=r"unknown normalisation mode 'minmax'(?s:.*)min_max"):
        build(robot="mine", robots={"mine": RobotConfig(action_transform="minmax")})
    with pytest.raises(DataError, match=r"sets a mode for action parts it does not use(?s:.*)grip"):
        build(robot="mine", robots={"mine": RobotConfig(action_modes={"grip": "binary"})})
    with pytest.raises(DataError, match="unknown robot 'mine'"):
        build(robot="mine")
    with pytest.raises(DataError, match="gives 8 action steps, the model predicts 16"):
        build(horizon=16)
    with pytest.raises(DataError, match=r"actions of .* have 7 dimensions"):
        build(max_action_dim=6)


def test_a_robot_of_ones_own_without_modality_file(copy_set, build):
    (copy_set() / "meta" / "modality.json").unlink()
    dataset = build(robot="auto", horizon=4)
    sample = dataset[0]
    assert sample["lang"] in ("put the bowl on the plate", "open the middle drawer")
    assert collate([sample])["action"].shape == (1, 4, 8)
    assert np.abs(sample["state"][0, :8]).max() <= 1
    assert dataset.statistics["new_embodiment"]["action"]["mask"] == [True] * 7
    assert dataset.action_names("new_embodiment")[::3] == ["action[0]", "action[3]", "action[6]"]


def test_episodes_of_lists_of_lists():
    column = pa.chunked_array([pa.array([[[1.0, 2.0]], [[3.0, 4.0]]])])
    np.testing.assert_array_equal(column_array(column), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="different length"):
        column_array(pa.chunked_array([pa.array([[1.0], [1.0, 2.0]])]))
