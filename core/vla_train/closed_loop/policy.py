"""A trained model as a policy: observations in, actions in the training set's units out, through its data path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vla_backend import Backend
from vla_train.closed_loop.environments import Observation, SimulatorError
from vla_train.data.source import RobotSource, Window


def live_window(source: RobotSource, seen: Sequence[Observation], frames: Sequence[int] | None = None) -> Window:
    """The window of training, filled with what has been seen; the future shows the present, actions are zero.

    Args:
        source: the dataset whose names and offsets are used.
        seen: the observations so far, the present one last.
        frames: positions in `robot.video_deltas` to use; null = all.

    Raises:
        SimulatorError: the environment lacks a camera or a state part of the training set, or its size differs.
    """
    robot, modality, present = source.robot, source.dataset.modality, seen[-1]
    for group, wanted, there in (
        ("camera", robot.cameras, present.video),
        ("state part", [part.name for part in robot.state], present.state),
    ):
        absent = [name for name in wanted if name not in there]
        if absent:
            raise SimulatorError(
                f"The environment shows no {group} {', '.join(absent)}, which the model was trained with.",
                why=f"it shows: {', '.join(there) or 'none'}",
                fix="choose the environment that the training set was recorded in",
            )
    for part in robot.state:
        width, found = modality.state[part.name].width, np.shape(present.state[part.name])
        if found != (width,):
            raise SimulatorError(
                f"The state part {part.name} has shape {found} here and ({width},) in {source.dataset.folder}.",
                fix="choose the environment that the training set was recorded in",
            )

    def at(delta: int) -> Observation:
        return seen[max(len(seen) - 1 + min(delta, 0), 0)]

    offsets = robot.video_deltas if frames is None else [robot.video_deltas[i] for i in frames]
    horizon = len(robot.action_deltas)
    return Window(
        state={
            part.name: np.stack([np.asarray(at(delta).state[part.name], np.float64) for delta in robot.state_deltas])
            for part in robot.state
        },
        action={part.name: np.zeros((horizon, modality.action[part.name].width)) for part in robot.action},
        action_valid=np.zeros(horizon, dtype=bool),
        video={camera: np.stack([at(delta).video[camera] for delta in offsets]) for camera in robot.cameras},
        language=present.language,
    )


class Policy:
    """Asks a model for chunks of actions.

    Args:
        model: has `predict_action(batch, generator) -> (B, H, D)`, normalised; on its device.
        dataset: of its training; has `sources`, `live_sample(number, seen)` and the inverse of its normalisation.
        collate: samples to batch.
        backend: device-ready.
        dtype: autocast dtype.
        number: which of the dataset's sources the environment belongs to.
    """

    def __init__(
        self,
        model: Any,
        dataset: Any,
        collate: Callable[[list[dict[str, Any]]], dict[str, Any]],
        backend: Backend,
        dtype: torch.dtype = torch.float32,
        number: int = 0,
    ) -> None:
        if not hasattr(dataset, "live_sample"):
            raise SimulatorError(
                "This model cannot act in an environment.", why=f"{type(dataset).__name__} has no live_sample()"
            )
        self.model, self.dataset, self.collate, self.backend = model, dataset, collate, backend
        self.dtype, self.number = dtype, number
        source: RobotSource = dataset.sources[number]
        self.tag = source.robot.tag
        self.widths = {part.name: source.dataset.modality.action[part.name].width for part in source.robot.action}

    def __call__(self, seen: Sequence[Observation], generator: torch.Generator) -> list[Mapping[str, np.ndarray]]:
        """The next actions, parts (D,) by name, as many as the model predicts."""
        sample = self.dataset.live_sample(self.number, seen)
        inputs = self.backend.to_device(self.collate([sample]))
        with self.backend.evaluating(self.model), self.backend.autocast(self.dtype):
            predicted = self.backend.to_numpy(self.model.predict_action(inputs, generator=generator))
        decode = getattr(self.dataset, "decode_actions", None)
        actions = decode(predicted, [sample]) if decode else self.dataset.unnormalize_actions(predicted, self.tag)
        ends = np.cumsum(list(self.widths.values()))[:-1]
        return [dict(zip(self.widths, np.split(action, ends), strict=True)) for action in actions[0]]


def blinded(seen: Observation) -> Observation:
    """The same with black pictures."""
    return Observation({name: np.zeros_like(frame) for name, frame in seen.video.items()}, seen.state, seen.language)
