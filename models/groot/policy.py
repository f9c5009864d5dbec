"""Serving a checkpoint: observations in, actions in the robot's units out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vla_backend import Backend
from vla_groot.checkpoint import find_checkpoint, load_model
from vla_groot.custom import load_modality_configs
from vla_groot.errors import EmbodimentError, ProcessorError
from vla_groot.modality import Embodiment
from vla_groot.model import Groot
from vla_groot.observation import Observation, check_observation, encode_observation, texts
from vla_groot.processor import GrootProcessor

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class GrootPolicy:
    """A model, its processor and one embodiment.

    Args:
        model: on the backend's device, in eval mode.
        processor: of the same checkpoint.
        embodiment_tag: tag or published name.
        strict: check observations and name what is wrong; false trusts them.

    Raises:
        EmbodimentError: the checkpoint does not know the embodiment.
    """

    def __init__(self, model: Groot, processor: GrootProcessor, embodiment_tag: Any, *, strict: bool = True) -> None:
        self.model, self.processor, self.strict = model, processor, strict
        self.backend: Backend = model.backend
        self.tag = processor.tag(embodiment_tag)
        self.modality: Embodiment = processor.embodiment(self.tag)
        if self.tag not in processor.statistics:
            raise EmbodimentError(
                f"The checkpoint was not trained on '{self.tag}'.",
                why=f"it has statistics of: {', '.join(processor.statistics) or 'none'}",
                fix="choose one of these, or fine-tune it on data of this embodiment first",
            )
        if len(self.modality["language"].modality_keys) != 1:
            raise EmbodimentError(f"'{self.tag}' has no single instruction.", fix="describe one language key")

    @classmethod
    def load(
        cls,
        model_path: Path | str,
        embodiment_tag: Any,
        backend: Backend,
        *,
        dtype: str = "bf16",
        strict: bool = True,
        modality_config: Path | str | None = None,
        backbone: str = "",
        revision: str | None = None,
        exact_positions: bool = False,
    ) -> GrootPolicy:
        """The policy of a checkpoint, on the backend's device.

        Args:
            model_path: folder or hub id.
            embodiment_tag: tag or published name.
            backend: device-ready backend.
            dtype: "bf16" (as published) or "fp32".
            strict: see the class.
            modality_config: file with modality configs of own embodiments.
            backbone: folder or hub id of the backbone's tokenizer and configuration.
            revision: hub revision.
            exact_positions: with "bf16", keep the frequencies of the rotary embeddings in float32, as `vla train` has
                them; the published policy rounds them like the weights.

        Raises:
            CheckpointError, BackboneError, EmbodimentError: see their messages.
            UnsupportedError: the chip cannot compute in `dtype`.
        """
        if dtype not in DTYPES:
            raise ProcessorError(f"dtype is {dtype!r}.", fix=f"use {' or '.join(DTYPES)}")
        folder = find_checkpoint(model_path, revision)
        custom = load_modality_configs(modality_config) if modality_config else None
        processor = GrootProcessor.load(folder, embodiments=custom, backbone=backbone)
        # A tag that is not there is said before gigabytes are read.
        processor.tag(embodiment_tag)
        model = load_model(folder, backend, backbone=backbone, dtype=backend.compute_dtype(dtype))
        if not exact_positions:
            model.backbone.round_frequencies(backend.compute_dtype(dtype))
        return cls(model.to(backend.device), processor, embodiment_tag, strict=strict)

    def get_action(
        self,
        observation: Observation,
        options: Mapping[str, Any] | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Actions for a batch of observations.

        Args:
            observation: {"video": {view: (B, T, H, W, 3) uint8}, "state": {part: (B, T, D) float32},
                "language": {key: B lists of one text}}, T being the number of delta_indices.
            options: {"seed": int} makes the noise repeatable; for real-time chunking "action" (B, H, A), the
                `normalized` actions of an earlier call, and the keys of `RealTimeChunk`.
            generator: source of the noise instead of a seed.

        Returns:
            {part: (B, H, D) float32} and {"normalized": (B, action_horizon, max_action_dim) float32}.

        Raises:
            ProcessorError: the observation does not fit the embodiment.
        """
        given = dict(options or {})
        if given.get("seed") is not None:
            generator = torch.Generator().manual_seed(int(given["seed"]))
        batch = self.batch(observation)
        if given.get("action") is not None:
            batch["action"] = torch.as_tensor(np.asarray(given["action"]), dtype=torch.float32)
        moved = self.backend.to_device(batch)
        moved["embodiment_ids"] = batch["embodiment_id"].tolist()
        with self.backend.evaluating(self.model), self.backend.autocast(torch.float32):
            predicted = self.model.get_action(moved, given, generator)
        normalized = self.backend.to_numpy(predicted.float())
        states = {key: np.asarray(value) for key, value in observation["state"].items()}
        decoded = self.processor.decode_action(normalized, self.tag, states)
        actions = {key: value.astype(np.float32) for key, value in decoded.items()}
        return actions, {"normalized": normalized}

    def batch(self, observation: Observation) -> dict[str, torch.Tensor]:
        """Model inputs of observations as `get_action` takes them, on the CPU."""
        if self.strict:
            check_observation(observation, self.tag, self.modality)
        videos = [np.asarray(observation["video"][key]) for key in self.modality["video"].modality_keys]
        language = observation["language"][self.modality["language"].modality_keys[0]]
        return encode_observation(self.processor, self.tag, videos, texts(language), observation["state"])

    def reset(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Nothing is kept between calls, so there is nothing to forget."""
        return {}

    def get_modality_config(self) -> Embodiment:
        """What an observation must hold."""
        return dict(self.modality)
