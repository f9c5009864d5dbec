"""From raw samples to model inputs and from model outputs to the robot's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vla_groot.backbone_files import BackboneFiles
from vla_groot.embodiments import BUILT_IN, complete_slots, resolve_tag
from vla_groot.errors import ConfigError, EmbodimentError, ProcessorError
from vla_groot.images import settings_from, stack_views
from vla_groot.modality import GROUPS, Embodiment
from vla_groot.processor_files import DEFAULTS, ProcessorFiles, applied, read_files, write_files
from vla_groot.state_action import StateActionProcessor
from vla_groot.vision_language import VisionLanguageProcessor, formalize


@dataclass
class Sample:
    """One raw sample.

    Attributes:
        images: frames by view, each (T, H, W, 3) uint8.
        states: parts, each (T, D) float32.
        actions: parts, each (H, D) float32; empty in inference.
        text: the instruction.
        embodiment: its tag.
    """

    images: Mapping[str, np.ndarray]
    states: Mapping[str, np.ndarray]
    actions: Mapping[str, np.ndarray] = field(default_factory=dict)
    text: str = ""
    embodiment: str = ""


class GrootProcessor:
    """Prepares samples of all embodiments it knows.

    Args:
        embodiments: modality configs by tag.
        files: the backbone's files.
        statistics: see `StateActionProcessor`.
        slots: slot of the embodiment-specific layers by tag; missing published tags are filled in.
        settings: the other keys of `processor_kwargs` in `processor_config.json`; missing ones take `DEFAULTS`.
    """

    def __init__(
        self,
        embodiments: Mapping[str, Embodiment],
        files: BackboneFiles,
        statistics: Mapping[str, Any] | None = None,
        slots: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = {**DEFAULTS, **(settings or {})}
        if self.settings.get("extra_augmentation_config"):
            raise ConfigError(
                "extra_augmentation_config is not supported.",
                why="augmentations by segmentation mask need masks, which LeRobot sets do not hold",
                fix="set it to null; random crops, rotation and colour jitter are there",
            )
        self.slots = complete_slots(slots)
        self.images = settings_from(self.settings)
        self.vlm = VisionLanguageProcessor(files)
        self.state_action = StateActionProcessor(
            embodiments,
            statistics,
            **{
                key: self.settings[key]
                for key in (
                    "use_percentiles",
                    "clip_outliers",
                    "apply_sincos_state_encoding",
                    "use_relative_action",
                )
            },
        )

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        embodiments: Mapping[str, Embodiment] | None = None,
        changes: Mapping[str, Any] | None = None,
        backbone: str = "",
    ) -> GrootProcessor:
        """The processor of a checkpoint folder, whose files may lie in its sub-folder `processor`.

        Args:
            folder: the checkpoint.
            embodiments: modality configs that are added or replace those of the checkpoint.
            changes: settings to change; every one takes effect.
            backbone: folder or hub id of the backbone's files instead of the one the checkpoint names.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        files = read_files(folder)
        files.settings.update(applied(changes or {}))
        name = backbone or str(files.settings.get("model_name", DEFAULTS["model_name"]))
        source = BackboneFiles(name) if backbone else BackboneFiles.of_checkpoint(name, None, folder)
        known = {**BUILT_IN, **files.embodiments, **(embodiments or {})}
        return cls(known, source, files.statistics, files.slots, files.settings)

    def save(self, folder: Path) -> list[str]:
        """Write processor_config.json, statistics.json and embodiment_id.json; answers their names."""
        kept = {tag: config for tag, config in self.embodiments.items() if tag in self.statistics}
        return write_files(folder, ProcessorFiles(self.settings, kept or self.embodiments, self.statistics, self.slots))

    @property
    def embodiments(self) -> dict[str, Embodiment]:
        """Modality configs by tag."""
        return self.state_action.embodiments

    @property
    def statistics(self) -> dict[str, Any]:
        """Statistics by tag."""
        return self.state_action.statistics

    def tag(self, name: Any) -> str:
        """The tag that `name` means, among those that have a slot in the model's embodiment-specific layers.

        Raises:
            EmbodimentError: there is none; the message lists the nearest.
        """
        return resolve_tag(name, self.slots)

    def embodiment(self, name: Any) -> Embodiment:
        """Modality configs of the embodiment `name`.

        Raises:
            EmbodimentError: it is unknown, or its modality configs are missing or not complete.
        """
        tag = self.tag(name)
        found = self.embodiments.get(tag, {})
        missing = [group for group in GROUPS if group not in found]
        if missing:
            described = [known for known, groups in self.embodiments.items() if len(groups) == len(GROUPS)]
            what = f"The modality configs of '{tag}' lack {', '.join(missing)}."
            raise EmbodimentError(
                what if found else f"There are no modality configs of '{tag}'.",
                why=f"described: {', '.join(described)}",
                fix="choose one of them, or describe it in a file named by model.modality_config",
            )
        return found

    def prepare(
        self, sample: Sample, rng: np.random.Generator | None = None, *, augment: bool = True
    ) -> dict[str, Any]:
        """Model inputs of one sample; with `rng` as in training (images augmented, state perhaps dropped).

        Args:
            sample: raw.
            rng: source of the random choices of training.
            augment: false leaves the images as in evaluation.

        Returns:
            state (T, max_state_dim), action and action_mask (max_action_horizon, max_action_dim) if there are actions,
            embodiment_id, and vlm_content {text, images}: the prompt and its images (3, h, w), frame by frame.
        """
        tag = self.tag(sample.embodiment)
        result: dict[str, Any] = {}
        dropped = rng is not None and rng.random() < self.settings["state_dropout_prob"]
        result["state"] = self.state(sample.states, tag, dropped=dropped)
        if sample.actions:
            result["action"], result["action_mask"] = self.action(sample.actions, sample.states, tag)
        result["embodiment_id"] = self.slots[tag]
        augmentation = self.images.draw(rng) if rng is not None and augment else None
        names = self.embodiment(tag)["video"].modality_keys
        views = [self.images(_view(sample.images, name, tag), augmentation) for name in names]
        frames = stack_views(views, names)
        images = list(frames.reshape(-1, *frames.shape[2:]))
        text = formalize(sample.text) if self.settings["formalize_language"] else sample.text
        result["vlm_content"] = {"text": self.vlm.prompt(text, len(images)), "images": images}
        return result

    def state(self, states: Mapping[str, np.ndarray], tag: str, *, dropped: bool = False) -> np.ndarray:
        """Normalised state, (..., T, max_state_dim) float32, padded with zeros; all zeros if dropped or excluded."""
        parts = list(self.state_action.apply_state(states, tag).values())
        value = _padded(parts, self.settings["max_state_dim"], "state", tag)
        return np.zeros_like(value) if dropped or self.settings["exclude_state"] else value

    def action(
        self, actions: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray], tag: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Normalised action and its mask, both (max_action_horizon, max_action_dim) float32."""
        parts = list(self.state_action.apply_action(actions, tag, states).values())
        horizon, width = parts[0].shape[-2], sum(part.shape[-1] for part in parts)
        wanted = self.settings["max_action_horizon"]
        if horizon > wanted:
            raise ProcessorError(
                f"'{tag}' has {horizon} action steps, the model {wanted}.",
                why="action_horizon of the checkpoint is the longest chunk it predicts",
                fix=f"choose an embodiment with at most {wanted} delta_indices (without a modality config: "
                f"model.action_steps={wanted} or fewer), or a model with a longer horizon",
            )
        value = np.zeros((wanted, self.settings["max_action_dim"]), np.float32)
        value[:horizon] = _padded(parts, self.settings["max_action_dim"], "action", tag)
        mask = np.zeros_like(value)
        mask[:horizon, :width] = 1.0
        return value, mask

    def collate(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of what `prepare` answered."""
        contents = [sample["vlm_content"] for sample in samples]
        batch = {
            key: torch.from_numpy(np.stack([np.asarray(sample[key]) for sample in samples]))
            for key in samples[0]
            if key != "vlm_content"
        }
        images = [image for content in contents for image in content["images"]]
        return {**batch, **self.vlm([content["text"] for content in contents], images)}

    def decode_action(
        self, action: np.ndarray, tag: str, states: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Predicted actions in the robot's units.

        Args:
            action: (B, >= H, max_action_dim) normalised.
            tag: embodiment.
            states: the raw states (B, T, D) that relative actions refer to.

        Returns:
            Parts, each (B, H, D), H being the embodiment's action steps.
        """
        tag = self.tag(tag)
        horizon, start, parts = len(self.embodiment(tag)["action"].delta_indices), 0, {}
        for key, width in self.state_action.widths(tag, "action").items():
            parts[key] = np.asarray(action)[..., :horizon, start : start + width]
            start += width
        return self.state_action.unapply_action(parts, tag, states)


def _padded(parts: Sequence[np.ndarray], width: int, group: str, tag: str) -> np.ndarray:
    if not parts:
        raise ProcessorError(
            f"'{tag}' has no {group} parts.",
            why=f"the model reads a {group}",
            fix=f"name at least one under {group} in the modality configs, as meta/modality.json of the dataset has it",
        )
    value = np.concatenate(parts, axis=-1).astype(np.float32)
    if value.shape[-1] > width:
        raise ProcessorError(
            f"The {group} of '{tag}' has {value.shape[-1]} dimensions, the model takes {width}.",
            why=f"max_{group}_dim of the checkpoint",
            fix="use fewer parts, or a checkpoint with more room",
        )
    return np.pad(value, [*[(0, 0)] * (value.ndim - 1), (0, width - value.shape[-1])])


def _view(images: Mapping[str, np.ndarray], name: str, tag: str) -> np.ndarray:
    if name not in images:
        raise ProcessorError(
            f"View '{name}' is missing.",
            why=f"'{tag}' needs it; given: {', '.join(images) or 'none'}",
            fix="give every view, (T, H, W, 3) uint8",
        )
    frames = np.asarray(images[name])
    return frames[None] if frames.ndim == 3 else frames
