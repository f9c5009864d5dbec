"""Upstream's requests become batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (None, "no 'examples'"),
        ([], "no 'examples'"),
        ([{"lang": "x"}], "lacks image"),
        ([example(), example(image=[np.zeros((32, 32, 3), np.uint8)])], "differ in size"),
        ([example(), example(state=None)], "some have none"),
        ([example(image=[np.zeros((16, 32), np.uint8)])], "shape"),
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
