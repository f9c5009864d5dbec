#!/usr/bin/env python3
"""Record a LeRobot v2.1 data set from Meta-World's scripted experts.

Every episode is one of Meta-World's random task instances (another object position each), solved by the scripted
policy of the task and stored as it happened: camera image, end-effector state and the action that was applied.
Failed attempts are thrown away, so the set holds demonstrations only.
"""

from __future__ import annotations

import argparse
import ctypes.util
import importlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from lerobot_writer import Episode, LeRobotWriter, Part
from tqdm import tqdm

EXAMPLES = """examples:
  # the set that ships with the repository; the arm and the button stay within this part of the picture
  python examples/record_metaworld.py --out examples/data/metaworld_button_press_topdown --crop 0.18 0 0.64

  # another task, larger images, a second set of task instances
  python examples/record_metaworld.py --task drawer-open-v3 --episodes 100 --size 256 --seed 1 --out data/drawer_open

`pip install -e .[sim]` installs the simulator. Rendering needs no screen, only libEGL or libOSMesa.
"""

INSTALL_SIM = "pip install 'metaworld==3.1.1' 'mujoco==3.3.0' packaging"
INSTALL_GL = "apt-get install -y libegl1   (or, without a GPU driver: apt-get install -y libosmesa6)"

# Instructions of the MT10 tasks; any other task is named by its words ("coffee-push-v3" -> "coffee push").
INSTRUCTIONS = {
    "button-press-topdown-v3": "press the button from the top",
    "door-open-v3": "open the door",
    "drawer-close-v3": "close the drawer",
    "drawer-open-v3": "open the drawer",
    "peg-insert-side-v3": "insert the peg into the hole from the side",
    "pick-place-v3": "pick up the puck and bring it to the goal",
    "push-v3": "push the puck to the goal",
    "reach-v3": "move the gripper to the goal",
    "window-close-v3": "close the window",
    "window-open-v3": "open the window",
}

# Metres and opening in [0, 1]; displacement in cm per step and effort, both clipped to [-1, 1] by the environment.
STATE = (Part("eef_position", ("x", "y", "z")), Part("gripper", ("opening",)))
ACTION = (Part("eef_delta", ("dx", "dy", "dz")), Part("gripper", ("effort",)))
STATE_SIZE = 4


class Simulation(Protocol):
    """What the recorder needs from a simulator."""

    def reset(self, instance: int) -> np.ndarray:
        """Starts task instance `instance`; returns the observation vector."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """Applies one action; returns the next observation and whether the task is solved."""

    def expert(self, observation: np.ndarray) -> np.ndarray:
        """The scripted expert's action (4,), not yet clipped."""

    def render(self) -> np.ndarray:
        """The camera image, uint8 (H, W, 3)."""


def record_episode(simulation: Simulation, instance: int, max_steps: int) -> Episode | None:
    """Lets the expert solve one task instance; None when it does not within `max_steps`."""
    images, states, actions = [], [], []
    observation = simulation.reset(instance)
    for _ in range(max_steps):
        action = np.clip(simulation.expert(observation), -1.0, 1.0).astype(np.float32)
        images.append(simulation.render())
        states.append(observation[:STATE_SIZE].astype(np.float32))
        actions.append(action)
        observation, solved = simulation.step(action)
        if solved:
            return Episode(np.stack(images), np.stack(states), np.stack(actions))
    return None


def record(simulation: Simulation, writer: LeRobotWriter, episodes: int, max_steps: int, progress: bool = True) -> int:
    """Records until `episodes` demonstrations are written; returns the number of failed attempts.

    Raises:
        RuntimeError: the expert failed more often than it succeeded; such a set would be biased.
    """
    failures = 0
    with tqdm(total=episodes, desc="recording", unit="episode", disable=not progress) as bar:
        while len(writer.lengths) < episodes:
            episode = record_episode(simulation, len(writer.lengths) + failures, max_steps)
            if episode is None:
                failures += 1
                if failures > max(10, episodes):
                    raise RuntimeError(
                        f"the scripted expert failed {failures} times (successes: {len(writer.lengths)}) within "
                        f"{max_steps} steps; raise --max-steps or take another task"
                    )
                continue
            writer.add(episode)
            bar.update()
            bar.set_postfix(frames=sum(writer.lengths), failed=failures)
    writer.finish()
    return failures


class MetaWorld:
    """Meta-World's MT1 benchmark of one task, with its scripted policy and an offscreen camera."""

    def __init__(
        self, task: str, camera: str, size: int, seed: int, crop: tuple[float, float, float] = (0.0, 0.0, 1.0)
    ) -> None:
        self._metaworld = import_simulator("metaworld")
        policies = import_simulator("metaworld.policies")
        self._mujoco = import_simulator("mujoco")
        known = self._metaworld.MT1.ENV_NAMES
        if task not in known:
            raise SystemExit(f"error: Meta-World has no task {task!r}; tasks: {', '.join(sorted(known))}")
        self._task, self._seed = task, seed
        self._instances = self._make_instances()
        self._env = self._metaworld.MT1(task, seed=seed).train_classes[task]()
        self._policy = policies.ENV_POLICY_MAP[task]()
        self._known: list[Any] = []
        model = self._env.model
        cameras = [model.camera(i).name for i in range(model.ncam)]
        if camera not in cameras:
            raise SystemExit(f"error: {task} has no camera {camera!r}; cameras: {', '.join(cameras)}")
        self._camera = camera
        # Multi-sampling, shadows and reflections take 95 % of the time of a software renderer.
        model.vis.quality.offsamples = 0
        left, top, part = crop
        full = round(size / part)
        rows, columns = (min(round(offset * full), full - size) for offset in (top, left))
        self._window = (slice(rows, rows + size), slice(columns, columns + size))
        # The model limits offscreen pictures to 640 pixels.
        model.vis.global_.offwidth = model.vis.global_.offheight = max(full, 640)
        self._renderer = self._mujoco.Renderer(model, full, full)
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            self._renderer.scene.flags[getattr(self._mujoco.mjtRndFlag, flag)] = 0

    def _make_instances(self) -> Iterator[Any]:
        # MT1 holds 50 instances. They are taken in order, not drawn, because a repeated instance would be a copy of
        # an earlier episode; the next 50 come from the next seed.
        seed = self._seed * 1000
        while True:
            yield from self._metaworld.MT1(self._task, seed=seed).train_tasks
            seed += 1

    def reset(self, instance: int) -> np.ndarray:
        while len(self._known) <= instance:
            self._known.append(next(self._instances))
        self._env.set_task(self._known[instance])
        observation, _ = self._env.reset()
        return np.asarray(observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        observation, _, _, _, info = self._env.step(action)
        return np.asarray(observation), bool(info["success"])

    def expert(self, observation: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():  # the policies warn about gains that saturate the action, on purpose
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(self._policy.get_action(observation))

    def render(self) -> np.ndarray:
        self._renderer.update_scene(self._env.data, camera=self._camera)
        return np.asarray(self._renderer.render())[self._window].copy()

    def close(self) -> None:
        self._renderer.close()
        self._env.close()


def choose_renderer() -> None:
    """Sets MUJOCO_GL to an offscreen renderer that this machine has; must run before mujoco is imported."""
    if os.environ.get("MUJOCO_GL") or sys.platform != "linux":
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    raise SystemExit(
        f"error: neither libEGL nor libOSMesa is installed, so nothing can be rendered.\nRun: {INSTALL_GL}"
    )


def import_simulator(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        raise SystemExit(f"error: the Python package {exc.name!r} is missing.\nRun: {INSTALL_SIM}") from None
    except (ImportError, AttributeError) as exc:  # PyOpenGL reports a missing GL library as either
        raise SystemExit(
            f"error: {name} cannot be imported with MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {exc}\nRun: {INSTALL_GL}"
        ) from None


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the data set")
    parser.add_argument("--task", default="button-press-topdown-v3", help="Meta-World task (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=50, help="demonstrations to record (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the task instances (default: %(default)s)")
    parser.add_argument("--instruction", help="language instruction (default: made from the task)")
    parser.add_argument("--camera", default="topview", help="Meta-World camera (default: %(default)s)")
    parser.add_argument(
        "--crop",
        type=float,
        nargs=3,
        default=(0.0, 0.0, 1.0),
        metavar=("LEFT", "TOP", "PART"),
        help="keep a square of the camera's picture, as fractions of its width (default: 0 0 1, all of it)",
    )
    parser.add_argument("--size", type=int, default=96, help="image height and width in pixels (default: %(default)s)")
    parser.add_argument(
        "--fps",
        type=int,
        default=20,
        help="rate written to the files; every control step is one frame, whatever the rate (default: %(default)s)",
    )
    parser.add_argument("--crf", type=int, default=23, help="h264 quality, lower is better (default: %(default)s)")
    parser.add_argument("--max-steps", type=int, default=300, help="give up an attempt after (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="delete an existing set at --out first")
    arguments = parser.parse_args(argv)
    if arguments.episodes < 1:
        parser.error("--episodes must be at least 1")
    left, top, part = arguments.crop
    if min(left, top) < 0 or part <= 0 or max(left, top) + part > 1:
        parser.error(f"--crop {left:g} {top:g} {part:g} is not inside the picture; all of it is 0 0 1")
    if arguments.size < 16 or arguments.size % 2:
        parser.error("--size must be an even number of at least 16 (h264 stores colour at half resolution)")
    return arguments


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    if (arguments.out / "meta").exists():
        if not arguments.overwrite:
            raise SystemExit(f"error: {arguments.out} holds a data set already; pass --overwrite to replace it")
        for part in ("data", "meta", "videos"):
            shutil.rmtree(arguments.out / part, ignore_errors=True)
    choose_renderer()
    simulation = MetaWorld(arguments.task, arguments.camera, arguments.size, arguments.seed, arguments.crop)
    instruction = arguments.instruction or INSTRUCTIONS.get(
        arguments.task, arguments.task.rsplit("-", 1)[0].replace("-", " ")
    )
    camera = {"topview": "top", "gripperPOV": "wrist"}.get(arguments.camera, arguments.camera)
    writer = LeRobotWriter(
        arguments.out, instruction, arguments.fps, "sawyer", camera, STATE, ACTION, crf=arguments.crf
    )
    try:
        failures = record(simulation, writer, arguments.episodes, arguments.max_steps)
    finally:
        simulation.close()
    size = sum(f.stat().st_size for f in arguments.out.rglob("*") if f.is_file())
    print(
        f"{len(writer.lengths)} episodes, {sum(writer.lengths)} frames, {size / 1e6:.2f} MB in {arguments.out} "
        f"({failures} failed attempts left out)"
    )


if __name__ == "__main__":
    main()
