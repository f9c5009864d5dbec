"""End-effector poses as homogeneous matrices."""

from __future__ import annotations

import numpy as np

from vla_groot.errors import ProcessorError
from vla_groot.modality import ActionFormat
from vla_train.data.rotations import rotation_from_matrix, rotation_matrix

_ROTATIONS = {ActionFormat.XYZ_ROT6D: ("rotation_6d", 6), ActionFormat.XYZ_ROTVEC: ("axis_angle", 3)}


def read_pose(values: np.ndarray, form: ActionFormat) -> np.ndarray:
    """Poses (..., D) as matrices (..., 4, 4) float64. Six-number rotations are orthonormalised (Gram-Schmidt).

    Raises:
        ProcessorError: D does not fit the format.
    """
    values = np.asarray(values, dtype=np.float64)
    width = 16 if form is ActionFormat.DEFAULT else 3 + _ROTATIONS[form][1]
    if values.shape[-1] != width:
        raise ProcessorError(
            f"A pose has {values.shape[-1]} numbers.",
            why=f"format {form.name} has {width}",
            fix="correct the action's format or the slices of meta/modality.json",
        )
    if form is ActionFormat.DEFAULT:
        return values.reshape(*values.shape[:-1], 4, 4)
    matrix = np.zeros((*values.shape[:-1], 4, 4))
    matrix[..., :3, :3] = rotation_matrix(values[..., 3:], _ROTATIONS[form][0])
    matrix[..., :3, 3] = values[..., :3]
    matrix[..., 3, 3] = 1.0
    return matrix


def write_pose(matrix: np.ndarray, form: ActionFormat) -> np.ndarray:
    """Matrices (..., 4, 4) as poses (..., D), a matrix row by row."""
    if form is ActionFormat.DEFAULT:
        return matrix.reshape(*matrix.shape[:-2], 16)
    rotation = rotation_from_matrix(matrix[..., :3, :3], _ROTATIONS[form][0])
    return np.concatenate([matrix[..., :3, 3], rotation], axis=-1)


def relative_pose(reference: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """`pose` seen from `reference`: inverse(reference) @ pose, for rigid motions (..., 4, 4)."""
    return np.linalg.inv(reference) @ pose
