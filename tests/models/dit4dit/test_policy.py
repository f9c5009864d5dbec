"""Upstream's requests become batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from vla_dit4dit.errors import BatchError
from vla_dit4dit.policy import to_batch, to_frame


def example(**changes):
    return {"image": [np.full((16, 32, 3), 51, np.uint8)], "lang": "push", "state": np.zeros((1, 4))} | changes


def test_batch() -> None:
    batch = to_batch([example(), example(lang="pull")])
    assert batch["images"].shape == (2, 1, 3, 16, 32)
    assert batch["images"].unique().tolist() == pytest.approx([0.2])
    assert batch["lang"] == ["push", "pull"]
    assert batch["state"].shape == (2, 1, 4)
    assert batch["state"].dtype == torch.float32  # clients send float64, which not every chip has


def test_frames_in_both_layouts_and_ranges() -> None:
    dark = np.ones((4, 8, 3), np.uint8)
    assert to_frame(dark).max() == pytest.approx(1 / 255)  # by dtype, not by the values it happens to hold
    assert torch.equal(to_frame(dark.transpose(2, 0, 1)), to_frame(dark))
    assert to_frame(torch.full((3, 4, 8), 0.5)).unique().tolist() == [0.5]


def test_single_examples_and_frames_need_no_list() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (16, 32, 3), np.uint8)
    expected = to_batch([example(image=[frame])])["images"]
    for image in (frame, Image.fromarray(frame), frame[None], torch.from_numpy(frame).permute(2, 0, 1)):
        found = to_batch(example(image=image))
        assert torch.equal(found["images"], expected)
        assert (found["lang"], found["state"].shape) == (["push"], (1, 1, 4))


def test_frames_of_other_kinds() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (16, 32, 3), np.uint8)
    expected = to_frame(frame)
    transparent = np.concatenate([frame, np.full((16, 32, 1), 7, np.uint8)], axis=-1)
    assert torch.equal(to_frame(transparent), expected)
    assert torch.equal(to_frame(torch.from_numpy(transparent).permute(2, 0, 1)), expected)
    assert torch.equal(to_frame(frame.astype(np.float64)), expected)  # 0..255 in floating point
    grey = to_frame(frame[..., 0])
    assert torch.equal(grey, expected[:1].expand(3, -1, -1))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (None, "no 'examples'"),
        ([], "no 'examples'"),
        ([{"lang": "x"}], "lacks image"),
        ([example(), example(image=[np.zeros((32, 32, 3), np.uint8)])], "differ in size"),
        ([example(), example(state=None)], "some have none"),
        ([example(image=[np.zeros((16, 32, 2), np.uint8)])], "shape"),
        ([3], "no map"),
        ([example(image=[])], "holds no frame"),
        ([example(image="front.png")], "'image' is a str"),
        ([example(image=["front.png"])], "A frame is made of"),
        ([example(state="home")], "not made of numbers"),
        ([example(state=np.float32(1))], r"A state has shape \(\)"),
        ([example(), example(state=np.zeros((1, 5)))], "states differ in shape"),
    ],
)
def test_bad_requests(examples, message) -> None:
    with pytest.raises(BatchError, match=message):
        to_batch(examples)
