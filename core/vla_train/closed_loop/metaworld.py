"""Meta-World: the tasks of its MT1 benchmarks, with an offscreen camera and the scripted experts."""

from __future__ import annotations

import ctypes.util
import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from vla_train.closed_loop.environments import EnvironmentEntry, Observation, SimulatorError

entry = EnvironmentEntry(
    name="metaworld",
    create="vla_train.closed_loop.metaworld:create",
    missing="vla_train.closed_loop.metaworld:missing",
)

INSTALL_SIM: Final = "pip install 'metaworld==3.1.1' 'mujoco==3.3.0' packaging"
INSTALL_GL: Final = "apt-get install -y libegl1   (or, without a GPU driver: apt-get install -y libosmesa6)"

# Instructions of the MT10 tasks; any other task is named by its words ("coffee-push-v3" -> "coffee push").
INSTRUCTIONS: Final = {
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
#: Position in metres and opening in [0, 1].
STATE: Final = {"eef_position": ("x", "y", "z"), "gripper": ("opening",)}
#: Displacement in cm per step and effort, both clipped to [-1, 1] by the environment.
ACTION: Final = {"eef_delta": ("dx", "dy", "dz"), "gripper": ("effort",)}
# MT1 makes 50 instances from one seed. Recordings count their seeds from 1000 x their own; evaluation is far away.
INSTANCES: Final = 50
EVALUATION_SEED: Final = 2_000_000_000


def create(
    task: str,
    camera: str = "topview",
    camera_name: str = "top",
    size: int = 96,
    crop: Sequence[float] = (0.0, 0.0, 1.0),
    instruction: str = "",
    max_steps: int = 150,
) -> MetaWorldEnvironment:
    """The environment of a task.

    Args:
        task: e.g. "button-press-topdown-v3".
        camera: of Meta-World.
        camera_name: what the training set calls it.
        size: pixels.
        crop: left edge, top edge and size of the part kept of the camera's picture, as fractions of its width.
        instruction: default: that of the recorder.
        max_steps: an episode that takes longer has failed.
    """
    choose_renderer()
    simulation = Simulation(task, camera, int(size), crop)
    return MetaWorldEnvironment(simulation, camera_name, instruction or instruction_of(task), int(max_steps))


def missing() -> str:
    """What to install, "" if nothing."""
    try:
        choose_renderer()
        for name in ("metaworld", "mujoco"):
            import_simulator(name)
    except SimulatorError as error:
        return f"{error.what} {error.fix}"
    return ""


class MetaWorldEnvironment:
    """A task for a policy: observations and actions under the names that the recorder gives them."""

    fps = 20

    def __init__(self, simulation: Simulation, camera_name: str, instruction: str, max_steps: int) -> None:
        self.simulation, self.max_steps = simulation, max_steps
        self._camera_name, self._instruction = camera_name, instruction

    def reset(self, seed: int) -> Observation:
        """An instance from a seed that no recording uses."""
        block, number = divmod(seed, INSTANCES)
        return self._observe(self.simulation.start(EVALUATION_SEED + block, number))

    def step(self, action: Mapping[str, np.ndarray]) -> tuple[Observation, bool]:
        """Clips the action to [-1, 1], as the recorder did."""
        wanted = np.concatenate([np.asarray(action[part], dtype=np.float64) for part in ACTION])
        values, solved = self.simulation.step(np.clip(wanted, -1.0, 1.0).astype(np.float32))
        return self._observe(values), solved

    def close(self) -> None:
        self.simulation.close()

    def _observe(self, values: np.ndarray) -> Observation:
        return Observation({self._camera_name: self.simulation.render()}, split_state(values), self._instruction)


def split_state(values: np.ndarray) -> dict[str, np.ndarray]:
    """The parts of the state at the start of Meta-World's observation vector; the rest is not for policies."""
    parts, start = {}, 0
    for part, names in STATE.items():
        parts[part] = values[start : start + len(names)].astype(np.float32)
        start += len(names)
    return parts


class Simulation:
    """Meta-World's MT1 benchmark of one task, with its scripted expert and an offscreen camera.

    Args:
        task: name of the task.
        camera: of Meta-World.
        size: height and width of the pictures in pixels.
        crop: left edge, top edge and size of the part kept of the camera's picture, as fractions of its width.

    Raises:
        SimulatorError: something is not installed, or there is no such task or camera.
    """

    def __init__(self, task: str, camera: str, size: int, crop: Sequence[float] = (0.0, 0.0, 1.0)) -> None:
        self._metaworld = import_simulator("metaworld")
        policies = import_simulator("metaworld.policies")
        mujoco = import_simulator("mujoco")
        known = sorted(self._metaworld.MT1.ENV_NAMES)
        if task not in known:
            near = difflib.get_close_matches(task, known, n=3)
            raise SimulatorError(
                f"Meta-World has no task '{task}'.",
                why=f"tasks: {', '.join(known)}",
                fix=f"did you mean {' or '.join(near)}?" if near else "choose one of them",
            )
        self._task = task
        self._instances: dict[int, list[Any]] = {}
        self._env = self._metaworld.MT1(task, seed=0).train_classes[task]()
        self._policy = policies.ENV_POLICY_MAP[task]()
        model = self._env.model
        cameras = [model.camera(i).name for i in range(model.ncam)]
        if camera not in cameras:
            raise SimulatorError(f"{task} has no camera '{camera}'.", fix=f"choose one of {', '.join(cameras)}")
        self._camera = camera
        # Multi-sampling, shadows and reflections take 95 % of the time of a software renderer.
        model.vis.quality.offsamples = 0
        left, top, part = crop
        full = round(size / part)
        rows, columns = (min(round(offset * full), full - size) for offset in (top, left))
        self._window = (slice(rows, rows + size), slice(columns, columns + size))
        # The model limits offscreen pictures to 640 pixels.
        model.vis.global_.offwidth = model.vis.global_.offheight = max(full, 640)
        try:
            self._renderer = mujoco.Renderer(model, full, full)
        except mujoco.FatalError as error:
            raise SimulatorError(
                f"Nothing can be rendered with MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {error}.",
                fix=f"try MUJOCO_GL=egl or MUJOCO_GL=osmesa; {INSTALL_GL}",
            ) from None
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            self._renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = 0

    def start(self, seed: int, number: int) -> np.ndarray:
        """Starts instance `number` of the 50 that MT1 makes from `seed`; returns the observation vector."""
        if seed not in self._instances:
            self._instances[seed] = self._metaworld.MT1(self._task, seed=seed).train_tasks
        self._env.set_task(self._instances[seed][number])
        observation, _ = self._env.reset()
        return np.asarray(observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """Applies one action; returns the next observation vector and whether the task is solved."""
        observation, _, _, _, info = self._env.step(action)
        return np.asarray(observation), bool(info["success"])

    def expert(self, observation: np.ndarray) -> np.ndarray:
        """The scripted expert's action (4,), not yet clipped."""
        with warnings.catch_warnings():  # the policies warn about gains that saturate the action, on purpose
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(self._policy.get_action(observation))

    def render(self) -> np.ndarray:
        """The camera's picture, uint8 (size, size, 3)."""
        self._renderer.update_scene(self._env.data, camera=self._camera)
        return np.asarray(self._renderer.render())[self._window].copy()

    def close(self) -> None:
        self._renderer.close()
        self._env.close()


def instruction_of(task: str) -> str:
    """The language instruction of a task."""
    return INSTRUCTIONS.get(task, task.rsplit("-", 1)[0].replace("-", " "))


def choose_renderer() -> None:
    """Sets MUJOCO_GL to an offscreen renderer that this machine has; must run before mujoco is imported.

    Raises:
        SimulatorError: there is none.
    """
    if os.environ.get("MUJOCO_GL") or sys.platform != "linux":
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    raise SimulatorError(
        "Neither libEGL nor libOSMesa is installed, so nothing can be rendered.", fix=f"Run: {INSTALL_GL}"
    )


def import_simulator(name: str) -> Any:
    """Import a module of the simulator.

    Raises:
        SimulatorError: it, or a library that it needs, is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SimulatorError(
            f"The Python package '{error.name}' is missing.", fix=f"Run: {INSTALL_SIM}   (or pip install '.[sim]')"
        ) from None
    except (ImportError, AttributeError) as error:  # PyOpenGL reports a missing GL library as either
        raise SimulatorError(
            f"{name} cannot be imported with MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {error}.",
            fix=f"Run: {INSTALL_GL}",
        ) from None
