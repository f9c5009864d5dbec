"""An environment of a third party: slide along x until the goal, which only the picture shows."""

from __future__ import annotations

import numpy as np

from vla_train.closed_loop.environments import EnvironmentEntry, Observation

entry = EnvironmentEntry(name="slider", create="slider:create", missing="slider:missing")


def missing() -> str:
    import os

    return os.environ.get("SLIDER_MISSING", "")


def create(task: str, size: int = 96, camera_name: str = "top", **ignored: object) -> Slider:
    return Slider(task, size, camera_name)


class Slider:
    """State and action have the names of the shipped Meta-World set. The goal is at 1 + seed steps of 1 cm."""

    max_steps, fps = 12, 20

    def __init__(self, task: str = "right", size: int = 96, camera_name: str = "top") -> None:
        self.task, self.size, self.camera_name = task, size, camera_name
        self.seeds: list[int] = []
        self.closed = False

    def reset(self, seed: int) -> Observation:
        self.seeds.append(seed)
        self.position, self.goal = 0.0, 1.0 + seed
        return self.observe()

    def observe(self) -> Observation:
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[:, : 10 * int(self.goal)] = 255
        state = {"eef_position": np.array([self.position, 0.6, 0.2], np.float32), "gripper": np.ones(1, np.float32)}
        return Observation({self.camera_name: picture}, state, "press the button from the top")

    def step(self, action: dict[str, np.ndarray]) -> tuple[Observation, bool]:
        assert {name: value.shape for name, value in action.items()} == {"eef_delta": (3,), "gripper": (1,)}
        self.position += float(action["eef_delta"][0])
        return self.observe(), abs(self.position - self.goal) < 0.5

    def close(self) -> None:
        self.closed = True
