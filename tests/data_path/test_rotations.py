from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from vla_train.data.errors import DataError
from vla_train.data.modality import VectorPart
from vla_train.data.robot import Part
from vla_train.data.rotations import NAMES, convert_rotation
from vla_train.data.transform import VectorTransform

STATS = {"r": {key: [0.0] * 4 for key in ("mean", "std", "min", "max", "q01", "q99")}}


@pytest.fixture
def quaternions() -> np.ndarray:
    q = np.random.default_rng(0).normal(size=(200, 4))
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[:, :1] < 0, -q, q)


@pytest.mark.parametrize(("first", "second"), itertools.permutations(NAMES, 2))
def test_there_and_back(first, second, quaternions):
    x = convert_rotation(quaternions, "quaternion", first)
    back = convert_rotation(convert_rotation(x, first, second), second, first)
    np.testing.assert_allclose(back, x, atol=1e-6)


def test_known_rotations():
    quarter = np.array([0.0, 0.0, np.pi / 2])  # about z: x becomes y
    np.testing.assert_allclose(convert_rotation(quarter, "axis_angle", "rotation_6d"), [0, -1, 0, 1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(
        convert_rotation(quarter, "axis_angle", "quaternion"), [np.sqrt(0.5), 0, 0, np.sqrt(0.5)], atol=1e-12
    )
    np.testing.assert_allclose(convert_rotation(quarter, "axis_angle", "euler_angles_rpy"), [0, 0, np.pi / 2])
    np.testing.assert_allclose(convert_rotation(quarter, "axis_angle", "euler_angles_ypr"), [np.pi / 2, 0, 0])
    # R_x(90) R_y(90): z goes to x first, which R_x leaves alone.
    six = convert_rotation(np.array([np.pi / 2, np.pi / 2, 0.0]), "euler_angles_rpy", "rotation_6d")
    np.testing.assert_allclose(six, [0, 0, 1, 1, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(convert_rotation(np.zeros((2, 3)), "axis_angle", "quaternion"), [[1, 0, 0, 0]] * 2)


def test_transform_converts_and_restores(quaternions):
    layout = {"r": VectorPart("c", 0, 4, rotation_type="quaternion")}
    transform = VectorTransform([Part("r", "min_max", "axis_angle")], layout, STATS, Path("x"))
    forward = transform.forward({"r": quaternions})
    assert transform.width == 3
    np.testing.assert_allclose(forward * np.pi, convert_rotation(quaternions, "quaternion", "axis_angle"), atol=1e-12)
    np.testing.assert_allclose(transform.inverse(forward), quaternions, atol=1e-9)


def test_what_makes_no_sense():
    with pytest.raises(DataError, match="does not say how it represents rotations"):
        VectorTransform([Part("r", "none", "axis_angle")], {"r": VectorPart("c", 0, 4)}, STATS, Path("x"))
    relative = {"r": VectorPart("c", 0, 4, absolute=False, rotation_type="quaternion")}
    with pytest.raises(DataError, match=r"cannot be normalised by 'min_max'(?s:.*)use none"):
        VectorTransform([Part("r", "min_max", "axis_angle")], relative, STATS, Path("x"))
