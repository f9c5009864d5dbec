"""Simulated environments and how they are found; a package describes each of its simulators with one entry."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final, Protocol

import numpy as np

from vla_backend.errors import BackendError

GROUP: Final = "vla_train.environments"


class SimulatorError(BackendError):
    """The environment asked for cannot be had, or does not fit the training set."""


@dataclass(frozen=True)
class Observation:
    """What a policy sees, under the names of the training set.

    Attributes:
        video: one picture per camera, (H, W, 3) uint8 RGB.
        state: the parts of the state, (D,) each, in the training set's units.
        language: the instruction.
    """

    video: Mapping[str, np.ndarray]
    state: Mapping[str, np.ndarray]
    language: str


class Environment(Protocol):
    """One task of a simulator.

    Attributes:
        max_steps: an episode that takes longer has failed.
        fps: control steps per second, of the videos.
    """

    max_steps: int
    fps: int

    def reset(self, seed: int) -> Observation:
        """Start the task instance that `seed` stands for; the same seed always starts the same one."""

    def step(self, action: Mapping[str, np.ndarray]) -> tuple[Observation, bool]:
        """Apply one action, its parts (D,) in the training set's units; answers whether the task is solved now."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class EnvironmentEntry:
    """What a package provides for a simulator; the module that holds it imports neither simulator nor torch.

    The fields written as "module:function" are imported when they are needed.

    Attributes:
        name: what stands before the colon in `--env name:task`.
        create: `(task, **options) -> Environment`. The options are those that the training set recorded in
            `meta/recording.json`, overridden by `--env-option`.
        missing: `() -> str`, one line that says what to install, "" if everything is there; may be left out.
    """

    name: str
    create: str
    missing: str = ""

    def call(self, name: str) -> Callable[..., Any]:
        """Import the function that the "module:function" in field `name` names."""
        module, _, attribute = str(getattr(self, name)).partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return function

    def make(self, task: str, options: Mapping[str, Any]) -> Environment:
        """The environment of `task`.

        Raises:
            SimulatorError: something is not installed, or there is no such task or option.
        """
        self.check()
        create = self.call("create")
        known = inspect.signature(create).parameters.values()
        names = [p.name for p in known if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)][1:]
        unknown = [name for name in options if name not in names]
        if unknown and not any(p.kind is p.VAR_KEYWORD for p in known):
            raise SimulatorError(
                f"The environment '{self.name}' has no option {', '.join(unknown)}.", fix=f"options: {', '.join(names)}"
            )
        environment: Environment = create(task, **options)
        return environment

    def check(self) -> None:
        """Raise an `SimulatorError` that says what to install, if something is missing."""
        reason = self.call("missing")() if self.missing else ""
        if reason:
            raise SimulatorError(f"The environment '{self.name}' cannot run here: {reason}")


def entries() -> dict[str, metadata.EntryPoint]:
    """Installed environments by name, none imported."""
    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}


def find(spec: str) -> tuple[EnvironmentEntry, str]:
    """The entry and the task of "name:task".

    Raises:
        SimulatorError: not written so, or not installed.
    """
    name, colon, task = spec.partition(":")
    installed = entries()
    there = ", ".join(sorted(installed)) or "none"
    if not colon or not task:
        raise SimulatorError(
            f"'{spec}' names no task.", why=f"environments: {there}", fix="write NAME:TASK, e.g. metaworld:push-v3"
        )
    if name not in installed:
        near = difflib.get_close_matches(name, installed, n=1)
        raise SimulatorError(
            f"There is no environment named '{name}'.",
            why=f"installed: {there}",
            fix=f"did you mean '{near[0]}:{task}'?" if near else f"install a package with an entry point in '{GROUP}'",
        )
    entry: EnvironmentEntry = installed[name].load()
    return entry, task
