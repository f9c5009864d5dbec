"""The data path against what upstream DiT4DiT produced on the same dataset."""

from __future__ import annotations

import numpy as np
import pytest

from vla_dit4dit.data.batch import collate
from vla_dit4dit.data.dataset import build_dataset
from vla_dit4dit.data.report import unnormalize
from vla_train.data.normalize import Normalizer
from vla_train.data.statistics import column_statistics

SAMPLES = (0, 1, 5, 17)
WINDOWS = ((0, 0), (0, 15), (1, 19))


@pytest.fixture
def dataset(config, pyav):
    return build_dataset(config(mask_padded_actions=False), pyav)


def test_raw_windows(dataset, golden, facts):
    source = dataset.sources[0]
    for episode, step in WINDOWS:
        window = source.window(source.episodes[episode], step)
        prefix = f"raw.{episode}.{step}"
        for group in ("state", "action"):
            parts = getattr(window, group)
            assert [f"{group}.{name}" for name in parts] == facts["modality_keys"][group]
            for name, values in parts.items():
                expected = golden[f"{prefix}.{group}.{name}"]
                assert values.dtype == expected.dtype
                np.testing.assert_array_equal(values, expected)
        for camera, frames in window.video.items():
            difference = np.abs(frames.astype(int) - golden[f"{prefix}.video.{camera}"])
            assert difference.max() <= 2  # another build of the h264 decoder may round differently
        assert [window.language] == facts["raw_lang"][f"{episode}.{step}.annotation.human.action.task_description"]


def test_transformed_windows(dataset, golden):
    source = dataset.sources[0]
    for episode, step in WINDOWS:
        window = source.window(source.episodes[episode], step, frames=[0])
        for group in ("state", "action"):
            for name, values in dataset.transforms[0][group].forward_parts(getattr(window, group)).items():
                expected = golden[f"xform.{episode}.{step}.{group}.{name}"]
                assert values.dtype == expected.dtype
                # The sine of the C library may differ in its last bit.
                np.testing.assert_allclose(values, expected, rtol=0, atol=2e-16 if group == "state" else 0)


def test_samples(dataset, golden, facts):
    for index in SAMPLES:
        sample, expected = dataset[index], facts["samples"][str(index)]
        for key in ("action", "state", "action_mask", "state_mask"):
            assert sample[key].dtype == golden[f"{index}.{key}"].dtype
            np.testing.assert_array_equal(sample[key], golden[f"{index}.{key}"])
        assert sample["lang"] == expected["lang"]
        assert sample["sample_id"] == f"tiny_libero/{expected['traj']}/{expected['base']}"
        images = sample["images"]
        assert list(images.shape) == [expected["n_images"], *expected["image_shape"]]
        assert str(images.dtype) == expected["image_dtype"]
        np.testing.assert_allclose(images[..., ::8, ::8], golden[f"{index}.image_sub8"], atol=2 / 255)
        np.testing.assert_allclose(images.mean(dim=(1, 2, 3)), expected["image_mean"], atol=1e-3)


@pytest.mark.parametrize("epoch", [0, 1])
def test_sampling_map(dataset, facts, epoch):
    assert len(dataset) == facts["len_mixture"]
    dataset.set_epoch(epoch)
    found = []
    for index in range(len(dataset)):
        source, step = dataset.sampler.draw(index)
        episode, step = dataset.sources[source].locate(step)
        found.append([episode.index, step])
    assert found == facts["sampling"][f"epoch{epoch}_seed42"]


def test_statistics(dataset, golden_file):
    computed = column_statistics(dataset.sources[0].dataset.files.table_paths())
    expected = golden_file("stats_gr00t.json")
    assert computed.keys() == expected.keys()
    for name, stats in expected.items():
        for key, values in stats.items():
            # Quantiles to the last bit, whatever numpy is installed.
            tolerance = 0 if key.startswith("q") else 1e-6
            np.testing.assert_allclose(
                computed[name][key], values, rtol=tolerance, atol=tolerance / 10, err_msg=f"{name} {key}"
            )


def test_dataset_statistics_file(dataset, golden_file):
    expected = golden_file("dataset_statistics.json")
    assert dataset.statistics.keys() == expected.keys()
    for group in ("action", "state"):
        assert list(dataset.statistics["franka"][group]) == list(expected["franka"][group])
        for key, values in expected["franka"][group].items():
            np.testing.assert_allclose(dataset.statistics["franka"][group][key], values, rtol=1e-6, atol=1e-7)
    assert dataset.statistics["franka"]["num_transitions"] == expected["franka"]["num_transitions"]
    assert dataset.statistics["franka"]["num_trajectories"] == expected["franka"]["num_trajectories"]


@pytest.mark.parametrize("mode", ["min_max", "q99", "mean_std", "binary", "scale"])
def test_normaliser_modes(mode, golden, facts):
    normalizer = Normalizer(mode, facts["norm_stats"])
    forward = normalizer.forward(golden["norm.x"])
    assert forward.dtype == np.float32
    np.testing.assert_allclose(forward, golden[f"norm.{mode}.fwd"], rtol=0, atol=1e-6)
    if mode != "scale":  # upstream has no inverse for it
        np.testing.assert_allclose(normalizer.inverse(forward), golden[f"norm.{mode}.inv"], rtol=0, atol=1e-6)


def test_scale_inverse_is_exact_where_the_range_is_not_empty(facts):
    normalizer = Normalizer("scale", facts["norm_stats"])
    x = np.array([[0.3, -0.2, 1.0, 0.5, -0.7, 1.9]])
    np.testing.assert_allclose(normalizer.inverse(normalizer.forward(x)), x, atol=1e-12)


def test_unnormalisation_from_the_file_alone(golden, golden_file):
    stats = golden_file("dataset_statistics.json")["franka"]["action"]
    actions = golden["unnorm.in"].copy()
    client = unnormalize(actions, stats, binary_dims=[6])
    np.testing.assert_allclose(client, golden["unnorm.libero_minmax"], rtol=0, atol=1e-12)
    framework = unnormalize(actions, stats, rule="q99", binary_dims=[6])
    np.testing.assert_allclose(framework, golden["unnorm.base_q99"], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(actions, golden["unnorm.in"])


def test_unnormalize_actions_undoes_the_training_transform(dataset):
    reference = dataset.episodes()[1]
    sample = next(dataset.episode_samples(reference, 1))
    restored = dataset.unnormalize_actions(sample["action"])
    assert dataset.action_names("franka") == ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    assert restored.shape == sample["raw_action"].shape == (8, 7)
    np.testing.assert_allclose(restored, sample["raw_action"], atol=2e-3)  # the sample is float16


def test_batch(dataset, golden):
    batch = collate([dataset[index] for index in SAMPLES])
    assert batch["images"].shape == (4, 5, 3, 224, 448)
    assert {key: str(batch[key].dtype) for key in ("images", "action", "action_mask", "state")} == {
        "images": "torch.float32",
        "action": "torch.float32",
        "action_mask": "torch.bool",
        "state": "torch.float32",
    }
    np.testing.assert_array_equal(batch["action"][1].numpy(), golden["1.action"].astype(np.float32))
    assert batch["state"].shape == (4, 1, 16)
    assert batch["lang"][0] == "put the bowl on the plate"
