"""Converting rotations between representations, through the 3x3 matrix."""

from __future__ import annotations

import numpy as np

from vla_train.data.errors import DataError

# Bounds used to normalise an absolute rotation after conversion: the range of the representation itself.
BOUNDS = {"rotation_6d": (-1.0, 1.0, 6), "quaternion": (-1.0, 1.0, 4), "axis_angle": (-np.pi, np.pi, 3)}
_EULER = ("rpy", "ryp", "pry", "pyr", "yrp", "ypr")
NAMES = ("axis_angle", "quaternion", "rotation_6d", *(f"euler_angles_{order}" for order in _EULER))


def check_representation(name: str, where: str) -> None:
    """Raise `DataError` unless `name` is a known representation; `where` says who asked."""
    if name not in NAMES:
        raise DataError(
            f"unknown rotation representation {name!r}", why=f"in {where}", fix=f"use one of {', '.join(NAMES)}"
        )


def bounds(name: str) -> dict[str, list[float]]:
    """`min` and `max` per dimension of a representation."""
    low, high, width = BOUNDS.get(name, (-np.pi, np.pi, 3))
    return {"min": [low] * width, "max": [high] * width}


def convert_rotation(x: np.ndarray, source: str, target: str) -> np.ndarray:
    """Rotations `x` (..., D_source) in another representation, (..., D_target).

    Conventions: quaternions are (w, x, y, z); `rotation_6d` is the first two rows of the matrix (Zhou et al. 2019);
    `euler_angles_rpy` applies R_x(first) R_y(second) R_z(third), other orders name their axes likewise
    (r = x, p = y, y = z); `axis_angle` is axis times angle in radians.
    """
    return x if source == target else rotation_from_matrix(rotation_matrix(x, source), target)


def _axes(name: str) -> list[int]:
    return ["rpy".index(letter) for letter in name.rsplit("_", 1)[-1]]


def _axis_rotation(axis: int, angle: np.ndarray) -> np.ndarray:
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.zeros((*angle.shape, 3, 3), angle.dtype)
    matrix[..., axis, axis] = 1
    matrix[..., i, i] = matrix[..., j, j] = np.cos(angle)
    matrix[..., j, i] = np.sin(angle)
    matrix[..., i, j] = -np.sin(angle)
    return matrix


def rotation_matrix(x: np.ndarray, source: str) -> np.ndarray:
    """Matrices (..., 3, 3) of rotations `x` in the representation `source`."""
    if source == "axis_angle":
        angle = np.linalg.norm(x, axis=-1, keepdims=True)
        # sin(a/2)/a tends to 1/2 for a -> 0.
        scale = np.where(angle > 1e-9, np.sin(angle / 2) / np.maximum(angle, 1e-9), 0.5)
        return rotation_matrix(np.concatenate([np.cos(angle / 2), x * scale], axis=-1), "quaternion")
    if source == "quaternion":
        w, i, j, k = np.moveaxis(x / np.linalg.norm(x, axis=-1, keepdims=True), -1, 0)
        rows = [
            [1 - 2 * (j * j + k * k), 2 * (i * j - k * w), 2 * (i * k + j * w)],
            [2 * (i * j + k * w), 1 - 2 * (i * i + k * k), 2 * (j * k - i * w)],
            [2 * (i * k - j * w), 2 * (j * k + i * w), 1 - 2 * (i * i + j * j)],
        ]
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    if source == "rotation_6d":
        first = x[..., :3] / np.linalg.norm(x[..., :3], axis=-1, keepdims=True)
        second = x[..., 3:] - (first * x[..., 3:]).sum(-1, keepdims=True) * first
        second = second / np.linalg.norm(second, axis=-1, keepdims=True)
        return np.stack([first, second, np.cross(first, second)], axis=-2)
    one, two, three = (_axis_rotation(axis, x[..., i]) for i, axis in enumerate(_axes(source)))
    return np.asarray(one @ two @ three)


def rotation_from_matrix(m: np.ndarray, target: str) -> np.ndarray:
    """Rotations (..., D) in the representation `target` of matrices `m` (..., 3, 3)."""
    if target == "rotation_6d":
        return m[..., :2, :].reshape(*m.shape[:-2], 6)
    if target == "quaternion":
        return _quaternion(m)
    if target == "axis_angle":
        q = _quaternion(m)
        size = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
        angle = 2 * np.arctan2(size, q[..., :1])
        return q[..., 1:] * np.where(size > 1e-9, angle / np.maximum(size, 1e-9), 2.0)
    a, b, c = _axes(target)
    sign = 1.0 if (b - a) % 3 == 1 else -1.0
    middle = np.arcsin(np.clip(sign * m[..., a, c], -1, 1))
    first = np.arctan2(-sign * m[..., b, c], m[..., c, c])
    third = np.arctan2(-sign * m[..., a, b], m[..., a, a])
    return np.stack([first, middle, third], axis=-1)


def _quaternion(m: np.ndarray) -> np.ndarray:
    """Of the four algebraically equal formulas the one with the largest divisor, for precision; w >= 0."""
    d = [m[..., i, i] for i in range(3)]
    squares = np.stack(
        [1 + d[0] + d[1] + d[2], 1 + d[0] - d[1] - d[2], 1 - d[0] + d[1] - d[2], 1 - d[0] - d[1] + d[2]], axis=-1
    )
    w = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]]
    s = [m[..., 1, 0] + m[..., 0, 1], m[..., 2, 0] + m[..., 0, 2], m[..., 2, 1] + m[..., 1, 2]]
    candidates = np.stack(
        [
            np.stack([squares[..., 0], w[0], w[1], w[2]], axis=-1),
            np.stack([w[0], squares[..., 1], s[0], s[1]], axis=-1),
            np.stack([w[1], s[0], squares[..., 2], s[2]], axis=-1),
            np.stack([w[2], s[1], s[2], squares[..., 3]], axis=-1),
        ],
        axis=-2,
    )
    best = squares.argmax(-1)[..., None, None]
    q = np.take_along_axis(candidates, best, axis=-2)[..., 0, :]
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return np.asarray(np.where(q[..., :1] < 0, -q, q))
