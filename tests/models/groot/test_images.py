"""Image transforms against recordings of the published implementation."""

from __future__ import annotations

import numpy as np
import pytest

from vla_groot.augment import jitter, rotate
from vla_groot.errors import ConfigError, ProcessorError
from vla_groot.images import Augmentation, ImagePipeline, stack_views
from vla_groot.resize import area_resize

VIEWS = ("image", "wrist_image", "image_0")
CASES = {
    "albu_edge48_frac0.9": {"shortest_image_edge": 48, "crop_fraction": 0.9},
    "albu_legacy_58_64": {"image_target_size": [64, 64], "image_crop_size": [58, 58]},
    "torchvision_58_64": {"image_target_size": [64, 64], "image_crop_size": [58, 58], "keep_aspect": False},
}


@pytest.fixture
def recorded(tensors):
    return {key: value.numpy() for key, value in tensors("image_eval").items()}


@pytest.mark.parametrize("letter_box", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_evaluation(recorded, case, letter_box):
    pipeline = ImagePipeline(**CASES[case], letter_box=letter_box)
    for view in VIEWS:
        wanted = recorded[f"{case}.letterbox={int(letter_box)}.{view}"].astype(int)
        found = pipeline(recorded[f"in.{view}"]).astype(int)
        assert found.shape == wanted.shape
        difference = np.abs(found - wanted)
        assert difference.max() <= 1, (view, difference.max())
        assert (difference > 0).mean() < 0.02, (view, (difference > 0).mean())


def test_one_crop_for_all_views_and_frames(recorded):
    pipeline = ImagePipeline(shortest_image_edge=64, crop_fraction=0.8)
    choice = pipeline.draw(np.random.default_rng(0))
    frame = recorded["in.image"]
    several = pipeline(np.stack([frame, frame]), choice)
    assert np.array_equal(several[0], several[1])
    assert np.array_equal(several[0], pipeline(frame, choice))
    corner = pipeline(frame, Augmentation(top=0.0, left=0.0))
    whole = area_resize(frame, 64, 64)
    assert np.array_equal(corner, np.moveaxis(area_resize(whole[:51, :51], 64, 64), -1, 0))
    assert not np.array_equal(corner, pipeline(frame, Augmentation(top=0.99, left=0.99)))


def test_draws_depend_on_the_generator_alone():
    pipeline = ImagePipeline(
        shortest_image_edge=64,
        crop_fraction=0.9,
        random_rotation_angle=10,
        color_jitter_params={"brightness": 0.3, "contrast": 0.4, "saturation": 0.5, "hue": 0.08},
    )
    first, second = (pipeline.draw(np.random.default_rng(7)) for _ in range(2))
    assert first == second
    assert -10 <= first.angle <= 10
    assert sorted(first.order) == ["brightness", "contrast", "hue", "saturation"]
    assert 0.7 <= first.jitter["brightness"] <= 1.3
    assert -0.08 <= first.jitter["hue"] <= 0.08


class TestAugmentations:
    def test_neutral_changes_nothing(self, recorded):
        frame = recorded["in.image"]
        neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
        assert np.abs(jitter(frame, neutral, list(neutral)).astype(int) - frame).max() <= 1
        assert np.array_equal(rotate(frame, 0.0), frame)

    def test_hue_turns_colours(self):
        red = np.full((1, 1, 3), [200, 20, 20], np.uint8)
        assert jitter(red, {"hue": 1 / 3}, ["hue"])[0, 0].tolist() == [20, 200, 20]
        assert jitter(red, {"hue": -1 / 3}, ["hue"])[0, 0].tolist() == [20, 20, 200]

    def test_brightness_contrast_saturation(self):
        frame = np.asarray([[[100, 50, 200], [10, 20, 30]]], np.uint8)
        assert jitter(frame, {"brightness": 0.5}, ["brightness"]).tolist() == [[[50, 25, 100], [5, 10, 15]]]
        gray = jitter(frame, {"saturation": 0.0}, ["saturation"])
        assert (gray == gray[..., :1]).all()
        assert len(np.unique(jitter(frame, {"contrast": 0.0}, ["contrast"]))) == 1

    def test_quarter_turn(self):
        frame = np.zeros((8, 8, 3), np.uint8)
        frame[0, :] = 255
        turned = rotate(frame, 90)
        assert turned[:, 0].mean() > 250 or turned[:, -1].mean() > 250
        assert turned[1:-1, 1:-1].mean() < 5


def test_views_of_different_size():
    views = [np.zeros((1, 3, 64, 64), np.uint8), np.zeros((1, 3, 64, 85), np.uint8)]
    with pytest.raises(ProcessorError, match="front 64x64, wrist 64x85"):
        stack_views(views, ["front", "wrist"])


@pytest.mark.parametrize(
    "settings",
    [{}, {"shortest_image_edge": 64}, {"keep_aspect": False, "shortest_image_edge": 64, "crop_fraction": 1.0}],
)
def test_incomplete_settings(settings):
    with pytest.raises(ConfigError, match=r"image_target_size|crop_fraction"):
        ImagePipeline(**settings)


def test_frames_that_are_no_images():
    with pytest.raises(ProcessorError, match="float32"):
        ImagePipeline(shortest_image_edge=64, crop_fraction=1.0)(np.zeros((8, 8, 3), np.float32))
