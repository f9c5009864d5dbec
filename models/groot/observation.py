"""Observations of a robot as model inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vla_groot.errors import ProcessorError
from vla_groot.images import stack_views
from vla_groot.modality import Embodiment
from vla_groot.processor import GrootProcessor
from vla_groot.vision_language import formalize

Observation = Mapping[str, Mapping[str, Any]]


def check_observation(observation: Observation, tag: str, embodiment: Embodiment) -> None:
    """Compare an observation with the embodiment's modality configs.

    Raises:
        ProcessorError: naming what is missing or has the wrong shape or dtype.
    """
    missing = [group for group in ("video", "state", "language") if not isinstance(observation.get(group), Mapping)]
    if missing:
        raise ProcessorError(
            f"The observation lacks {', '.join(missing)}.",
            why=f"it has {', '.join(observation) or 'nothing'}",
            fix="give {'video': {...}, 'state': {...}, 'language': {...}}",
        )
    sizes: dict[str, int] = {}
    for group, rank, kind in (("video", 5, np.uint8), ("state", 3, np.float32)):
        config = embodiment[group]
        for key in config.modality_keys:
            if key not in observation[group]:
                raise ProcessorError(
                    f"{group.capitalize()} '{key}' is missing.",
                    why=f"'{tag}' needs {', '.join(config.modality_keys)}",
                    fix=f"given: {', '.join(observation[group]) or 'none'}",
                )
            value = np.asarray(observation[group][key])
            if value.ndim != rank or value.dtype != kind or value.shape[1] != len(config.delta_indices):
                raise ProcessorError(
                    f"{group.capitalize()} '{key}' is {value.shape} {value.dtype}.",
                    why=f"(batch, {len(config.delta_indices)} steps"
                    + (", height, width, 3) uint8" if group == "video" else ", width) float32")
                    + f" is needed, the steps being {list(config.delta_indices)}",
                    fix="stack the history along the second axis and convert the dtype",
                )
            sizes[f"{group} '{key}'"] = len(value)
    key = embodiment["language"].modality_keys[0]
    if key not in observation["language"]:
        raise ProcessorError(
            f"Language '{key}' is missing.", why=f"given: {', '.join(observation['language']) or 'none'}"
        )
    sizes[f"language '{key}'"] = len(texts(observation["language"][key]))
    if len(set(sizes.values())) > 1:
        raise ProcessorError(
            "The parts of the observation have different batch sizes.",
            why=", ".join(f"{name} {size}" for name, size in sizes.items()),
            fix="give the same number of samples everywhere",
        )


def encode_observation(
    processor: GrootProcessor,
    tag: str,
    videos: Sequence[np.ndarray],
    instructions: Sequence[str],
    states: Mapping[str, Any],
) -> dict[str, torch.Tensor]:
    """Model inputs of a batch of observations, all views transformed at once.

    Args:
        processor: the checkpoint's.
        tag: embodiment.
        videos: views in the embodiment's order, (B, T, H, W, 3) uint8 each.
        instructions: B texts.
        states: parts, (B, T, D) each.

    Returns:
        state (B, T, max_state_dim), embodiment_id (B,) int32, action_mask (B, max_action_horizon) with ones at the
        embodiment's steps, and the backbone's inputs.
    """
    count = len(instructions)
    names = processor.embodiment(tag)["video"].modality_keys
    views = [processor.images(video) for video in videos]  # (B, T, 3, h, w)
    flat = [view.reshape(-1, *view.shape[2:]) for view in views]
    frames = stack_views(flat, names)
    frames = frames.reshape(count, -1, *frames.shape[2:])
    plain = [formalize(text) if processor.settings["formalize_language"] else text for text in instructions]
    prompts = [processor.vlm.prompt(text, frames.shape[1]) for text in plain]
    inputs = processor.vlm(prompts, list(frames.reshape(-1, *frames.shape[2:])))
    mask = np.zeros((count, processor.settings["max_action_horizon"]), np.float32)
    mask[:, : len(processor.embodiment(tag)["action"].delta_indices)] = 1.0
    parts = {key: np.asarray(value) for key, value in states.items()}
    return {
        **inputs,
        "state": torch.from_numpy(processor.state(parts, tag)),
        "embodiment_id": torch.full((count,), processor.slots[tag], dtype=torch.int32),
        "action_mask": torch.from_numpy(mask),
    }


def nested(observation: Mapping[str, Any], embodiment: Embodiment) -> Observation:
    """An observation with flat keys, "video.<view>", "state.<part>" and the language key, as one by group.

    Simulators send them so. For the "task", "annotation.human.coarse_action" comes first where it is given.
    """
    found: dict[str, dict[str, Any]] = {"video": {}, "state": {}, "language": {}}
    for key, value in observation.items():
        group, _, name = key.partition(".")
        if group in ("video", "state"):
            found[group][name] = value
    wanted = embodiment["language"].modality_keys[0]
    for key in (*(["annotation.human.coarse_action"] if wanted == "task" else []), wanted):
        if key in observation:
            found["language"] = {wanted: list(observation[key])}
            break
    return found


def texts(value: Any) -> list[str]:
    """One text per sample from a list of texts or of lists of one text.

    Raises:
        ProcessorError: it is something else.
    """
    listed = [[entry] if isinstance(entry, (str, np.str_)) else list(entry) for entry in value]
    wrong = next((entry for entry in listed if len(entry) != 1 or not isinstance(entry[0], (str, np.str_))), None)
    if wrong is not None:
        raise ProcessorError(
            f"An instruction is {wrong!r}.", why="each sample has one text", fix="give [['pick up the cube'], ...]"
        )
    return [str(entry[0]) for entry in listed]
