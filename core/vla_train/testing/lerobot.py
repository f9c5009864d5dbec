"""A tiny LeRobot dataset with something to learn in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vla_train.data.writer import Episode, LeRobotWriter, Part

SIZE, STEPS, EPISODES, FPS = 64, 24, 4, 10
_MIDDLE = 0.5
_STATE = (Part("position", ("x", "y")), Part("gripper", ("opening",)))
_ACTION = (Part("delta", ("dx", "dy")), Part("gripper", ("effort",)))


def write_tiny(root: Path, episodes: int = EPISODES, seed: int = 0) -> Path:
    """Write `episodes` episodes in which a disc moves to the middle; answers `root`."""
    writer = LeRobotWriter(root, "move the disc to the middle", FPS, "disc", "top", _STATE, _ACTION)
    random = np.random.default_rng(seed)
    for _ in range(episodes):
        writer.add(_episode(random))
    writer.finish()
    return root


def _episode(random: np.random.Generator) -> Episode:
    position = random.uniform(0.15, 0.85, size=2)
    images, states, actions = [], [], []
    for step in range(STEPS):
        opening = 1.0 - step / STEPS
        delta = 0.2 * (_MIDDLE - position)
        images.append(_picture(position))
        states.append([*position, opening])
        actions.append([*delta, 1.0 if step > STEPS // 2 else -1.0])
        position = position + delta
    return Episode(np.stack(images), np.asarray(states, np.float32), np.asarray(actions, np.float32))


def _picture(position: np.ndarray) -> np.ndarray:
    """A bright disc of an eighth of the picture's width on a dark ground, (SIZE, SIZE, 3) uint8."""
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    inside = (columns - position[0]) ** 2 + (rows - position[1]) ** 2 < (1 / 8) ** 2
    image = np.full((SIZE, SIZE, 3), 32, dtype=np.uint8)
    image[inside] = (220, 80, 60)
    return image
