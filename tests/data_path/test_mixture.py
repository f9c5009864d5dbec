from __future__ import annotations

import collections
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vla_dit4dit.data.batch import collate
from vla_dit4dit.data.dataset import build_dataset
from vla_dit4dit.data.images import arrange, lay_out, raw_views, resize, resize_frames
from vla_dit4dit.data.mixtures import MIXTURES
from vla_dit4dit.data.robots import ROBOTS
from vla_train.data.config import DataConfig, DatasetConfig, RobotConfig
from vla_train.data.errors import DataError
from vla_train.data.mixture import MixtureSampler
from vla_train.data.statistics import cache_folder, column_statistics, merge_statistics


@pytest.fixture
def build(config, pyav, tmp_path):
    def make(*entries: DatasetConfig, split: str = "train", **changes):
        return build_dataset(config(root=str(tmp_path), datasets=list(entries), **changes), pyav, split)

    return make


def scale_actions(folder, factor: float) -> None:
    for path in (folder / "data").rglob("*.parquet"):
        table = pq.read_table(path)
        rows = np.array(table["action"].to_pylist(), dtype=np.float32) * factor
        field = table.schema.field("action")
        column = pa.array(rows.tolist(), type=field.type)
        pq.write_table(table.set_column(table.column_names.index("action"), field, column), path)


def test_weights_and_length():
    sampler = MixtureSampler([100, 300, 50], [1.0, 1.0, 0.5])
    np.testing.assert_allclose(sampler.weights, [0.4, 0.4, 0.2])
    assert len(sampler) == 750  # 300 / 0.4: the secondary dataset (50 / 0.2) does not count
    counts = collections.Counter(sampler.draw(index)[0] for index in range(750))
    assert counts[0] == pytest.approx(300, rel=0.15)
    assert counts[2] == pytest.approx(150, rel=0.2)
    assert all(0 <= step < [100, 300, 50][dataset] for dataset, step in map(sampler.draw, range(750)))
    assert len(MixtureSampler([100, 300], [0.5, 0.2])) == 140  # without a weight of 1 the largest weight counts


def test_evaluation_draws_do_not_depend_on_epoch_or_seed():
    left, right = (MixtureSampler([40, 9], [1, 1], seed=seed, train=False) for seed in (1, 2))
    right.epoch = 5
    expected = [int(np.random.default_rng(index).choice(2, p=[0.5, 0.5])) for index in range(20)]
    assert [left.draw(i) for i in range(20)] == [right.draw(i) for i in range(20)]
    assert [left.draw(i)[0] for i in range(20)] == expected


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_what_cannot_be_sampled(weights):
    with pytest.raises(DataError, match="cannot be sampled"):
        MixtureSampler([5, 0][: len(weights)] if len(weights) == 2 else [0], weights)


def test_merged_statistics_equal_those_of_the_pooled_rows(copy_set):
    first, second = copy_set("first"), copy_set("second")
    scale_actions(second, 3.0)
    paths = [sorted((folder / "data").rglob("*.parquet")) for folder in (first, second)]
    merged = merge_statistics([column_statistics(p) for p in paths], [2.0, 2.0])
    pooled = column_statistics([*paths[0], *paths[1]])
    for key in ("mean", "std", "min", "max"):
        np.testing.assert_allclose(merged["action"][key], pooled["action"][key], rtol=1e-5, atol=1e-6)
    separate = column_statistics(paths[1])
    np.testing.assert_array_equal(
        merged["action"]["q99"], np.maximum(separate["action"]["q99"], pooled["action"]["q99"])
    )


def test_repeated_datasets_count_where_they_first_stand(copy_set, build):
    for name in ("first", "second"):
        copy_set(name)
    robot = "libero_franka"
    entries = [
        DatasetConfig("first", 1.0, robot),
        DatasetConfig("second", 2.0, robot),
        DatasetConfig("first", 3.0, robot),
    ]
    mixed = build(*entries)
    assert [source.dataset.name for source in mixed.sources] == ["first", "second"]
    np.testing.assert_allclose(mixed.sampler.weights, [1 / 3, 2 / 3])


def test_unusable_episodes_count_as_trajectories_only(copy_set, build):
    folder = copy_set("first")
    (folder / "meta" / "tasks.jsonl").write_text(
        json.dumps({"task_index": 0, "task": "put it"}) + "\n" + json.dumps({"task_index": 1, "task": ""})
    )
    entry = build(DatasetConfig("first", 1.0, "libero_franka")).statistics["franka"]
    assert (entry["num_trajectories"], entry["num_transitions"]) == (2, 20)


def test_datasets_of_one_robot_share_statistics(copy_set, build):
    copy_set("first")
    scale_actions(copy_set("second"), 2.0)
    mixed = build(DatasetConfig("first", 1.0, "libero_franka"), DatasetConfig("second", 1.0, "libero_franka"))
    alone = build(DatasetConfig("second", 1.0, "libero_franka"))
    assert len(mixed) == 80
    assert mixed.statistics["franka"]["num_transitions"] == 80
    stats, largest = mixed.statistics["franka"]["action"], alone.statistics["franka"]["action"]
    np.testing.assert_array_equal(stats["max"][:5], largest["max"][:5])
    episode = mixed.sources[0].episodes[0]
    small, large = (mixed.sample(number, episode, 0)["action"].astype(float) for number in (0, 1))
    restored = [mixed.unnormalize_actions(action)[:, :5] for action in (small, large)]
    np.testing.assert_allclose(restored[1], 2 * restored[0], atol=5e-3)


def test_tags_are_weighted_among_themselves(copy_set, build):
    """Statistics of a tag do not change because datasets of another tag stand beside it."""
    copy_set("first")
    scale_actions(copy_set("second"), 2.0)
    robots = {"other": RobotConfig(action_modes={"gripper": "none"})}
    entries = [DatasetConfig("first", 0.25, "libero_franka"), DatasetConfig("second", 1.0, "other")]
    both = build(*entries, robots=robots)
    assert set(both.statistics) == {"franka", "other"}
    for entry, tag in zip(entries, ("franka", "other"), strict=True):
        alone = build(entry, robots=robots)
        assert both.statistics[tag] == alone.statistics[tag]
    with pytest.raises(DataError, match="franka, other"):
        both.unnormalize_actions(np.zeros((1, 8)))
    assert both.unnormalize_actions(np.zeros((1, 8)), "other").shape == (1, 7)


def test_tag_shared_by_different_robots(copy_set, build):
    copy_set("first")
    copy_set("second")
    robots = {"half": RobotConfig(action_keys=["x", "y"], tag="franka", state_transform="sincos")}
    with pytest.raises(DataError, match=r"have different parts(?s:.*)data\.robots\.<name>\.tag"):
        build(DatasetConfig("first", 1.0, "libero_franka"), DatasetConfig("second", 1.0, "half"), robots=robots)


def test_statistics_are_cached_outside_the_dataset(copy_set, build, cache, monkeypatch):
    folder = copy_set("first")
    before = sorted(path for path in folder.rglob("*"))
    entry = DatasetConfig("first", 1.0, "libero_franka")
    first = build(entry).statistics
    assert sorted(path for path in folder.rglob("*")) == before
    assert len(list(cache_folder().glob("first-*.json"))) == 1
    assert cache in cache_folder().parents
    with monkeypatch.context() as patch:
        patch.setattr("vla_train.data.statistics.column_statistics", lambda *a: pytest.fail("not cached"))
        assert build(entry).statistics == first
    scale_actions(folder, 2.0)
    changed = build(entry).statistics["franka"]["action"]["max"]
    np.testing.assert_allclose(changed, 2 * np.array(first["franka"]["action"]["max"]))


def test_shipped_statistics_are_used_if_complete(copy_set, build, golden_file):
    folder = copy_set("first")
    shipped = golden_file("stats_gr00t.json")
    shipped["action"]["max"] = [9.0] * 7
    (folder / "meta" / "stats_gr00t.json").write_text(json.dumps(shipped))
    entry = DatasetConfig("first", 1.0, "libero_franka")
    assert build(entry).statistics["franka"]["action"]["max"] == [9.0] * 7
    assert build(entry, holdout_episodes=1).statistics["franka"]["action"]["max"][0] < 1
    del shipped["action"]["q01"]
    (folder / "meta" / "stats_gr00t.json").write_text(json.dumps(shipped))
    assert build(entry).statistics["franka"]["action"]["max"][0] < 1


def test_holdout(copy_set, build):
    folder = copy_set("first")
    entry = DatasetConfig("first", 1.0, "libero_franka")
    train, held = build(entry, holdout_episodes=1), build(entry, holdout_episodes=1, split="eval")
    assert [[ref.name for ref in part.episodes()] for part in (train, held)] == [["first/0"], ["first/1"]]
    assert (len(train), len(held)) == (20, 20)
    only = column_statistics([folder / "data/chunk-000/episode_000000.parquet"])
    np.testing.assert_allclose(train.statistics["franka"]["action"]["max"], only["action"]["max"])
    assert held.merged == train.merged
    steps = list(held.episode_samples(held.episodes()[0], 7))
    assert [sample["step"] for sample in steps] == [0, 7, 14]
    assert [len(sample["raw_action"]) for sample in steps] == [8, 8, 6]
    with pytest.raises(DataError, match=r"data\.holdout_episodes is 0"):
        build(entry, split="eval")
    with pytest.raises(DataError, match=r"data\.holdout_episodes=2 leaves none"):
        build(entry, holdout_episodes=2)


def test_padded_actions_and_the_loss(copy_set, build):
    copy_set("first")
    entry = DatasetConfig("first", 1.0, "libero_franka")
    ours, upstream = build(entry), build(entry, mask_padded_actions=False)
    episode = ours.sources[0].episodes[0]
    left, right = (dataset.sample(0, episode, 17) for dataset in (ours, upstream))
    np.testing.assert_array_equal(left["action"], right["action"])
    assert left["action_mask"][:, :7].any(axis=1).tolist() == [True] * 3 + [False] * 5
    assert right["action_mask"][:, :7].all()
    assert not right["action_mask"][:, 7:].any()


def test_relative_actions_are_padded_with_zeros(copy_set, build):
    folder = copy_set("first")
    path = folder / "meta" / "modality.json"
    content = json.loads(path.read_text())
    content["action"]["x"]["absolute"] = False
    path.write_text(json.dumps(content))
    source = build(DatasetConfig("first", 1.0, "libero_franka")).sources[0]
    window = source.window(source.episodes[0], 18)
    assert window.action["x"][:2].all()
    assert not window.action["x"][2:].any()
    assert (window.action["y"][2:] == window.action["y"][1]).all()


def test_wrist_views_stand_to_the_right_and_others_beside_or_behind():
    frames = {name: np.full((3, 8, 8, 3), 10 * i, np.uint8) for i, name in enumerate(["wrist_left", "front", "side"])}
    beside = lay_out(frames, (4, 4), "concat")
    assert beside.shape == (3, 3, 4, 12)
    np.testing.assert_allclose(beside[0, 0, 0, ::4] * 255, [10, 20, 0])
    behind = lay_out({name: frames[name] for name in ("front", "side")}, (4, 4), "as_frames")
    assert behind.shape == (6, 3, 4, 4)
    np.testing.assert_allclose(behind[:, 0, 0, 0] * 255, [10, 10, 10, 20, 20, 20])
    odd = lay_out(frames, (4, 4), "as_frames")  # three wrist frames do not fill a clip of six
    assert odd.shape == (9, 3, 4, 4)
    both = {"front": frames["front"], "wrist_a": frames["side"], "wrist_b": frames["wrist_left"]}
    assert torch.equal(lay_out(both, (4, 4), "as_frames"), lay_out(both, (4, 4), "concat"))
    wrists = {name: both[name] for name in ("wrist_a", "wrist_b")}  # nothing to stand beside
    assert lay_out(wrists, (4, 4), "as_frames").shape == (6, 3, 4, 4)
    assert lay_out(wrists, (4, 4), "concat").shape == (3, 3, 4, 8)


@pytest.mark.parametrize("extra_views", ["concat", "as_frames"])
def test_resizing_batches_equals_resizing_samples(extra_views):
    names, generator = ["wrist_a", "front", "wrist_b", "side"], np.random.default_rng(0)
    for count in (1, 2, 3, 4):
        videos = [
            {name: generator.integers(0, 256, (3, 8, 10, 3), np.uint8) for name in names[:count]} for _ in range(2)
        ]
        expected = torch.stack([lay_out(video, (6, 4), extra_views) for video in videos])
        views = [raw_views(video) for video in videos]
        batch = {name: resize(torch.stack([view[name] for view in views]), (6, 4)) for name in views[0]}
        assert torch.equal(arrange(batch, extra_views), expected)
    assert list(views[0]) == ["primary_0", "primary_1", "wrist_0", "wrist_1"]
    assert views[0]["primary_1"].dtype == torch.uint8


def test_batches_of_raw_views(config, pyav):
    plain, raw = build_dataset(config(), pyav), build_dataset(config(resize_on_device=True), pyav)
    expected, batch = (collate(dataset.__getitems__([0, 7])) for dataset in (plain, raw))
    assert torch.equal(collate([plain[index] for index in (0, 7)])["images"], expected["images"])
    assert batch.keys() == expected.keys() - {"images"} | {"views"}
    views = {name: resize(view, config().data.image_size) for name, view in batch["views"].items()}
    assert torch.equal(arrange(views, "concat"), expected["images"])
    torch.testing.assert_close(batch["action"], expected["action"], rtol=0, atol=0)
    for dataset in (raw, plain):
        one, other = dataset.__getitems__([0, 1])
        other["views"] = {name: view[..., :-2] for name, view in other["views"].items()}
        if dataset is plain:
            assert torch.equal(collate([one, other])["images"][0], expected["images"][0])
            continue
        with pytest.raises(DataError, match=r"different views") as error:
            collate([one, other])
        assert "model.resize_on_device=false" in str(error.value)


def test_dark_frames_are_scaled_like_all_others():
    assert resize_frames(np.ones((1, 4, 4, 3), np.uint8), (4, 4)).max().item() == pytest.approx(1 / 255)


def test_known_mixtures_name_known_robots():
    robots = {robot for mixture in MIXTURES.values() for _, _, robot in mixture}
    assert robots - set(ROBOTS) == {"R1Pro"}  # listed upstream without a description of the robot
    assert {name: len(MIXTURES[name]) for name in ("libero_all", "fourier_gr1_unified_1000", "real_robot_all")} == {
        "libero_all": 4,
        "fourier_gr1_unified_1000": 24,
        "real_robot_all": 7,
    }
    assert len(MIXTURES["robotwin_all_50"]) == 100


def test_mixture_by_name(copy_set, config, pyav, tmp_path):
    for name, _, _ in MIXTURES["libero_all"]:
        copy_set(name)
    dataset = build_dataset(config(root=str(tmp_path), datasets=[], mixture="libero_all"), pyav)
    assert len(dataset) == 160
    with pytest.raises(DataError, match=r"unknown mixture 'libero_al'; did you mean 'libero_all'\?"):
        build_dataset(config(datasets=[], mixture="libero_al"), pyav)


def test_problems_of_the_section():
    assert not DataConfig(mixture="libero_all").problems()
    keys = [
        key for key, _, _ in DataConfig(batch_size=0, image_size=[1], num_workers="all", extra_views="x").problems()
    ]
    assert keys == ["data.datasets", "data.batch_size", "data.image_size", "data.extra_views", "data.num_workers"]


@pytest.mark.parametrize("split", ["train", "eval"])
def test_samples_are_named_without_being_read(config, pyav, split):
    dataset = build_dataset(config(holdout_episodes=1), pyav, split)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        assert [dataset.sample_id(index) for index in (0, 3)] == [dataset[index]["sample_id"] for index in (0, 3)]
    with pytest.raises(IndexError):
        dataset.sample_id(len(dataset))
