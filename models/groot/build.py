"""Model and processor of a configuration, and the export of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from vla_backend import Backend
from vla_groot.architecture import Architecture
from vla_groot.backbone_files import BackboneFiles
from vla_groot.checkpoint import build_new, find_checkpoint, load_model, save_backbone_files, save_checkpoint
from vla_groot.config import GrootConfig
from vla_groot.custom import load_modality_configs
from vla_groot.embodiments import BUILT_IN
from vla_groot.errors import CheckpointError
from vla_groot.feature_cache import FeatureCache
from vla_groot.modality import Embodiment, parse_embodiment
from vla_groot.model import Groot
from vla_groot.processor import GrootProcessor


def build(config: Any, backend: Backend) -> Groot:
    """The model of a configuration on the CPU, with the weights of its base checkpoint.

    Args:
        config: complete configuration; `config.model` is a `GrootConfig`.
        backend: the active backend.

    Raises:
        GrootError: checkpoint or backbone cannot be had or do not fit.
    """
    section: GrootConfig = config.model
    section.validate()
    if section.base_model:
        model = load_model(
            section.base_model,
            backend,
            revision=section.base_revision,
            changes=section.changes(),
            backbone=section.backbone,
        )
    else:
        architecture = new_architecture(section)
        model = build_new(architecture, new_files(section, architecture), backend)
    if section.gradient_checkpointing:
        recompute(model)
    if section.feature_cache:
        padding_seen = not model.config.mask_feature_padding
        limit = int(section.feature_cache_gb * 1e9)
        model.feature_cache = FeatureCache(model.backbone, backend.name, limit, padding_seen=padding_seen)
    return model


def recompute(model: Groot) -> None:
    """Recompute the backbone's layers in the backward pass."""
    qwen = model.backbone.qwen
    # transformers 5 renames it.
    enable = getattr(qwen, "activation_checkpointing_enable", None) or qwen.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def build_processor(section: GrootConfig, folder: Path | None = None) -> GrootProcessor:
    """The processor that training uses: the base checkpoint's with every change of `section.processor`.

    Unless set there, actions marked as relative are taken as such, and the processor drops no state: the action head
    does that already, and twice would drop more than asked.

    Args:
        section: of the run.
        folder: the base checkpoint, if it has been found already.

    Raises:
        GrootError: the checkpoint's files or the file of modality configs cannot be read.
    """
    if section.base_model:
        folder = folder or find_checkpoint(section.base_model, section.base_revision)
        embodiments, changes = _changed(section)
        return GrootProcessor.load(folder, embodiments=embodiments, changes=changes, backbone=section.backbone)
    architecture = new_architecture(section)
    return new_processor(section, architecture, new_files(section, architecture))


def new_processor(section: GrootConfig, architecture: Architecture, files: BackboneFiles) -> GrootProcessor:
    """The processor of a model that has no checkpoint with one."""
    embodiments, changes = _changed(section)
    sizes = {
        "max_state_dim": architecture.max_state_dim,
        "max_action_dim": architecture.max_action_dim,
        "max_action_horizon": architecture.action_horizon,
        "model_name": section.backbone or architecture.model_name,
    }
    return GrootProcessor({**BUILT_IN, **embodiments}, files, settings={**sizes, **changes})


def _changed(section: GrootConfig) -> tuple[dict[str, Embodiment], dict[str, Any]]:
    """Own embodiments and the processor's settings that a configuration sets."""
    custom = load_modality_configs(section.modality_config) if section.modality_config else {}
    given = {key: value for key, value in asdict(section.processor).items() if value is not None}
    return custom, {"use_relative_action": True, "state_dropout_prob": 0.0, **given}


def trained_processor(section: GrootConfig, statistics: Mapping[str, Any]) -> GrootProcessor:
    """The processor of a run, which knows the embodiments it was trained on.

    Args:
        section: of the run.
        statistics: contents of the run's `dataset_statistics.json`; empty for a base checkpoint as it is, whose
            processor is changed in nothing but what the section says.

    Raises:
        GrootError: the checkpoint's files or the file of modality configs cannot be read.
    """
    if not statistics and section.base_model:
        custom = load_modality_configs(section.modality_config) if section.modality_config else None
        folder = find_checkpoint(section.base_model, section.base_revision)
        return GrootProcessor.load(
            folder, embodiments=custom, changes=asdict(section.processor), backbone=section.backbone
        )
    processor = build_processor(section)
    for tag, entry in statistics.items():
        processor.statistics[tag] = entry["parts"]
        processor.embodiments[tag] = parse_embodiment(entry["modality_configs"], tag)
    return processor


def export_checkpoint(
    model: Groot, run_dir: Path | str, out: Path | str, statistics: Mapping[str, Any], step: int | None = None
) -> list[Path]:
    """Write a checkpoint in the hub's layout: config.json, weights, processor files, and the backbone's small files.

    Args:
        model: its full weights are written.
        run_dir: run folder whose `config.yaml` holds the complete configuration.
        out: folder to write; created.
        statistics: contents of the run's `dataset_statistics.json`.
        step: not used; the layout has no place for it.

    Returns:
        The files written.

    Raises:
        CheckpointError: `run_dir` is no run of this model.
    """
    from vla_train.config import load_config

    file, out = Path(run_dir) / "config.yaml", Path(out)
    if not file.is_file():
        raise CheckpointError(f"{file} is missing.", fix="give the folder of a run")
    section: GrootConfig = load_config([file])[0].model
    processor = trained_processor(section, statistics)
    weights: dict[str, torch.Tensor] = model.full_state_dict()
    names = save_checkpoint(out, model.config, weights)
    names += processor.save(out)
    names += save_backbone_files(out, processor.vlm.files)
    return [out / name for name in names]


def new_architecture(section: GrootConfig) -> Architecture:
    """A new head does not see padding; what published checkpoints see, they were trained with."""
    right = {"mask_feature_padding": True, "strict_action_padding_mask": True}
    return Architecture().updated({**right, **section.changes()})


def new_files(section: GrootConfig, architecture: Architecture) -> BackboneFiles:
    """Where the backbone of a new head comes from."""
    return BackboneFiles(section.backbone or architecture.model_name, architecture.model_revision)
