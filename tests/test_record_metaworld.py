"""The recorder with a simulated simulator, and the data set that ships with the repository."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SHIPPED = EXAMPLES / "data" / "metaworld_button_press_topdown"


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("record_metaworld")
    sys.modules.pop("record_metaworld", None)


class Slider:
    """A one-dimensional task: slide to the goal. Odd instances cannot be solved when `unsolvable_odd`."""

    def __init__(self, unsolvable_odd: bool = False) -> None:
        self.unsolvable_odd = unsolvable_odd
        self.instances: list[int] = []

    def reset(self, instance):
        self.instances.append(instance)
        self.position, self.goal = 0.0, 5.0 + instance
        self.stuck = self.unsolvable_odd and instance % 2 == 1
        return self.observation()

    def observation(self):
        return np.array([self.position, 0.1, 0.2, 1.0, self.goal])

    def step(self, action):
        assert abs(action).max() <= 1.0
        self.position += 0.0 if self.stuck else float(action[0])
        return self.observation(), self.position >= self.goal

    def expert(self, observation):
        return np.array([10 * (observation[4] - observation[0]), -3.0, 0.25, 1.0])

    def render(self):
        image = np.zeros((32, 48, 3), dtype=np.uint8)
        image[:, : 4 + 2 * int(self.position)] = (200, 40, 40)
        return image


def make_writer(recorder, root, **kwargs):
    return recorder.LeRobotWriter(
        root, "slide to the goal", 20, "slider", "top", recorder.STATE, recorder.ACTION, **kwargs
    )


def decode(path: Path) -> tuple[np.ndarray, list[bool]]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return np.stack([f.to_ndarray(format="rgb24") for f in frames]), [f.key_frame for f in frames]


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def column(table, name: str) -> np.ndarray:
    return np.array(table[name].to_pylist())


def check_consistent(root: Path) -> dict:
    """Everything that meta/ says holds for the files; returns info.json."""
    info = json.loads((root / "meta/info.json").read_text())
    episodes = read_lines(root / "meta/episodes.jsonl")
    stats = read_lines(root / "meta/episodes_stats.jsonl")
    tasks = {row["task_index"]: row["task"] for row in read_lines(root / "meta/tasks.jsonl")}
    (video_key,) = [key for key, feature in info["features"].items() if feature["dtype"] == "video"]
    assert len(episodes) == len(stats) == info["total_episodes"] == info["total_videos"]
    assert info["splits"] == {"train": f"0:{len(episodes)}"}
    next_row = 0
    for row, stat in zip(episodes, stats, strict=True):
        index, length = row["episode_index"], row["length"]
        names = {"episode_chunk": index // info["chunks_size"], "episode_index": index, "video_key": video_key}
        table = pq.read_table(root / info["data_path"].format(**names))
        frames, key_frames = decode(root / info["video_path"].format(**names))
        assert table.num_rows == len(frames) == length
        assert list(frames.shape[1:]) == info["features"][video_key]["shape"]
        assert key_frames == [i % 2 == 0 for i in range(length)]
        assert set(table.column_names) == set(info["features"]) - {video_key}
        for name in ("observation.state", "action"):
            values = column(table, name)
            assert list(values.shape) == [length, *info["features"][name]["shape"]]
            np.testing.assert_allclose(stat["stats"][name]["mean"], values.mean(0), rtol=1e-4, atol=1e-6)
            np.testing.assert_array_equal(np.float32(stat["stats"][name]["max"]), np.float32(values.max(0)))
        np.testing.assert_allclose(column(table, "timestamp"), np.arange(length) / info["fps"], rtol=1e-6)
        assert column(table, "frame_index").tolist() == list(range(length))
        assert column(table, "index").tolist() == list(range(next_row, next_row + length))
        assert set(column(table, "episode_index").tolist()) == {index}
        assert {tasks[i] for i in column(table, "task_index").tolist()} == set(row["tasks"])
        next_row += length
    assert next_row == info["total_frames"]
    modality = json.loads((root / "meta/modality.json").read_text())
    assert set(modality) == {"state", "action", "video", "annotation"}
    assert [v["original_key"] for v in modality["video"].values()] == [video_key]
    assert modality["annotation"]["human.task_description"]["original_key"] in info["features"]
    for part, feature in (("state", "observation.state"), ("action", "action")):
        slices = list(modality[part].values())
        covered = [i for s in slices for i in range(s["start"], s["end"])]
        assert covered == list(range(info["features"][feature]["shape"][0]))
    return info


def test_recording_is_complete_and_consistent(recorder, tmp_path):
    writer = make_writer(recorder, tmp_path, chunk_size=2)
    assert recorder.record(Slider(), writer, episodes=3, max_steps=50, progress=False) == 0
    info = check_consistent(tmp_path)
    assert (info["total_chunks"], info["total_frames"]) == (2, 5 + 6 + 7)
    assert (tmp_path / "data/chunk-001/episode_000002.parquet").exists()


def test_rows_pair_what_was_seen_with_the_clipped_action(recorder, tmp_path):
    writer = make_writer(recorder, tmp_path)
    recorder.record(Slider(), writer, episodes=1, max_steps=50, progress=False)
    table = pq.read_table(tmp_path / "data/chunk-000/episode_000000.parquet")
    np.testing.assert_allclose(column(table, "observation.state")[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_allclose(column(table, "action"), [[1.0, -1.0, 0.25, 1.0]] * 5)
    frames, _ = decode(tmp_path / f"videos/chunk-000/{writer.video_key}/episode_000000.mp4")
    filled = (frames[:, 16, :, 0] > 100).sum(axis=1)
    np.testing.assert_allclose(filled, [4, 6, 8, 10, 12], atol=1)


def test_failed_attempts_are_left_out_and_instances_never_repeat(recorder, tmp_path):
    simulation = Slider(unsolvable_odd=True)
    writer = make_writer(recorder, tmp_path)
    assert recorder.record(simulation, writer, episodes=3, max_steps=20, progress=False) == 2
    assert simulation.instances == [0, 1, 2, 3, 4]
    assert writer.lengths == [5, 7, 9]


def test_hopeless_expert_is_an_error(recorder, tmp_path):
    with pytest.raises(RuntimeError, match="raise --max-steps"):
        recorder.record(Slider(), make_writer(recorder, tmp_path), episodes=3, max_steps=2, progress=False)


def test_same_input_gives_the_same_bytes(recorder, tmp_path):
    for name in ("a", "b"):
        recorder.record(Slider(), make_writer(recorder, tmp_path / name), episodes=2, max_steps=50, progress=False)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) == 2 + 2 + 5
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_writer_refuses_ragged_episodes(recorder, tmp_path):
    writer = make_writer(recorder, tmp_path)
    images, vectors = np.zeros((3, 32, 32, 3), np.uint8), np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match="3 images, 3 states and 2 actions"):
        writer.add(recorder.Episode(images, vectors, vectors[:2]))
    writer.add(recorder.Episode(images, vectors, vectors))
    with pytest.raises(ValueError, match="image size"):
        writer.add(recorder.Episode(images[:, :16], vectors, vectors))


def test_missing_parts_are_named_with_the_install_line(recorder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "metaworld", None)  # import raises ModuleNotFoundError
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(SystemExit, match=r"metaworld.*\n.*pip install 'metaworld==3\.1\.1'"):
        recorder.main(["--out", str(tmp_path / "set")])
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(recorder.metaworld.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(SystemExit, match=r"libEGL.*\n.*apt-get install -y libegl1"):
        recorder.main(["--out", str(tmp_path / "set")])
    monkeypatch.setattr(
        recorder.metaworld.ctypes.util, "find_library", lambda name: "lib" if name == "OSMesa" else None
    )
    recorder.metaworld.choose_renderer()
    assert os.environ.pop("MUJOCO_GL") == "osmesa"


def test_the_set_says_how_it_was_recorded(recorder, tmp_path):
    arguments = recorder.parse_arguments(["--out", str(tmp_path), "--crop", "0.18", "0", "0.64"])
    (tmp_path / "meta").mkdir()
    recorder.write_recording(arguments, "top", "press the button from the top")
    assert (tmp_path / "meta/recording.json").read_bytes() == (SHIPPED / "meta/recording.json").read_bytes()


def test_an_existing_set_is_kept(recorder, tmp_path):
    (tmp_path / "meta").mkdir()
    with pytest.raises(SystemExit, match="--overwrite"):
        recorder.main(["--out", str(tmp_path)])


def test_shipped_set_is_consistent_and_small():
    info = check_consistent(SHIPPED)
    assert (info["total_episodes"], info["fps"], info["codebase_version"]) == (50, 20, "v2.1")
    assert sum(f.stat().st_size for f in SHIPPED.rglob("*") if f.is_file()) <= 4_000_000


def test_shipped_episodes_are_distinct():
    # A repeated task instance would put a copy of a training episode among the held-out ones.
    tables = [pq.read_table(f) for f in sorted(SHIPPED.glob("data/*/*.parquet"))]
    assert len({column(t, "observation.state").tobytes() for t in tables}) == len(tables) == 50
