#!/usr/bin/env python3
"""Record a LeRobot v2.1 data set from Meta-World's scripted experts.

Every episode is one of Meta-World's random task instances (another object position each), solved by the scripted
policy of the task and stored as it happened: camera image, end-effector state and the action that was applied.
Failed attempts are thrown away, so the set holds demonstrations only.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Protocol

import numpy as np
from tqdm import tqdm

from vla_train.closed_loop import metaworld
from vla_train.closed_loop.environments import SimulatorError
from vla_train.data.writer import Episode, LeRobotWriter, Part

EXAMPLES = """examples:
  # the set that ships with the repository; the arm and the button stay within this part of the picture
  python examples/record_metaworld.py --out examples/data/metaworld_button_press_topdown --crop 0.18 0 0.64

  # another task, larger images, a second set of task instances
  python examples/record_metaworld.py --task drawer-open-v3 --episodes 100 --size 256 --seed 1 --out data/drawer_open

`pip install -e .[sim]` installs the simulator. Rendering needs no screen, only libEGL or libOSMesa.
"""

STATE = tuple(Part(name, dimensions) for name, dimensions in metaworld.STATE.items())
ACTION = tuple(Part(name, dimensions) for name, dimensions in metaworld.ACTION.items())
STATE_SIZE = sum(len(part.names) for part in STATE)


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


class Recorded(metaworld.Simulation):
    """Task instances in order, not drawn: a repeated one would be a copy of an earlier episode.

    MT1 makes 50 from a seed; the next 50 come from the next seed.
    """

    def __init__(self, task: str, camera: str, size: int, seed: int, crop: tuple[float, float, float]) -> None:
        super().__init__(task, camera, size, crop)
        self._seed = seed * 1000

    def reset(self, instance: int) -> np.ndarray:
        block, number = divmod(instance, metaworld.INSTANCES)
        return self.start(self._seed + block, number)


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
    try:
        metaworld.choose_renderer()
        simulation = Recorded(arguments.task, arguments.camera, arguments.size, arguments.seed, arguments.crop)
    except SimulatorError as error:
        raise SystemExit(f"error: {error}") from None
    instruction = arguments.instruction or metaworld.instruction_of(arguments.task)
    camera = {"topview": "top", "gripperPOV": "wrist"}.get(arguments.camera, arguments.camera)
    writer = LeRobotWriter(
        arguments.out, instruction, arguments.fps, "sawyer", camera, STATE, ACTION, crf=arguments.crf
    )
    try:
        failures = record(simulation, writer, arguments.episodes, arguments.max_steps)
    finally:
        simulation.close()
    write_recording(arguments, camera, instruction)
    size = sum(f.stat().st_size for f in arguments.out.rglob("*") if f.is_file())
    print(
        f"{len(writer.lengths)} episodes, {sum(writer.lengths)} frames, {size / 1e6:.2f} MB in {arguments.out} "
        f"({failures} failed attempts left out)"
    )


def write_recording(arguments: argparse.Namespace, camera: str, instruction: str) -> None:
    """Writes `meta/recording.json`, from which `vla eval --env` shows a policy the same pictures."""
    options = {
        "camera": arguments.camera,
        "camera_name": camera,
        "size": arguments.size,
        "crop": list(arguments.crop),
        "instruction": instruction,
    }
    recording = {"environment": f"{metaworld.entry.name}:{arguments.task}", "options": options}
    text = json.dumps(recording, indent=1) + "\n"
    (arguments.out / "meta" / "recording.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
