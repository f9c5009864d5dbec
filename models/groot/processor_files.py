"""The processor's files in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_groot.errors import CheckpointError, ConfigError
from vla_groot.modality import Embodiment, parse_embodiment

FILES = ("processor_config.json", "statistics.json", "embodiment_id.json")
DEFAULTS: dict[str, Any] = {
    "image_crop_size": None,
    "image_target_size": None,
    "use_albumentations": True,
    "random_rotation_angle": None,
    "color_jitter_params": None,
    "shortest_image_edge": 256,
    "crop_fraction": 0.95,
    "letter_box_transform": False,
    "model_name": "nvidia/Cosmos-Reason2-2B",
    "model_type": "qwen",
    "formalize_language": True,
    "max_state_dim": 132,
    "max_action_dim": 132,
    "max_action_horizon": 40,
    "use_percentiles": True,
    "use_mean_std": False,
    "clip_outliers": True,
    "apply_sincos_state_encoding": False,
    "use_relative_action": False,
    "exclude_state": False,
    "state_dropout_prob": 0.0,
}


@dataclass
class ProcessorFiles:
    """What the files hold.

    Attributes:
        settings: `processor_kwargs` but for the modality configs.
        embodiments: modality configs by tag.
        statistics: by tag.
        slots: of the embodiment-specific layers, by tag.
    """

    settings: dict[str, Any]
    embodiments: dict[str, Embodiment]
    statistics: dict[str, Any]
    slots: dict[str, int]


def read_files(folder: Path) -> ProcessorFiles:
    """From `folder`, or its sub-folder `processor` as final checkpoints of the published trainer have it.

    Raises:
        CheckpointError: processor_config.json is missing, or a file is damaged.
    """
    place = folder if (folder / FILES[0]).is_file() else folder / "processor"
    raw = _read(place / FILES[0])
    settings = dict(raw.get("processor_kwargs", raw))
    own = {tag: parse_embodiment(configs, tag) for tag, configs in settings.pop("modality_configs", {}).items()}
    inside = settings.pop("statistics", None) or {}
    settings.pop("embodiment_id_mapping", None)
    statistics = _read(place / FILES[1]) if (place / FILES[1]).is_file() else inside
    slots = _read(place / FILES[2]) if (place / FILES[2]).is_file() else {}
    return ProcessorFiles(settings, own, statistics, slots)


def write_files(folder: Path, files: ProcessorFiles) -> list[str]:
    """Write the three files; answers their names. The order of the tags does not depend on hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = {
        tag: {group: part.to_dict() for group, part in config.items()} for tag, config in files.embodiments.items()
    }
    kwargs = {"modality_configs": configs, **files.settings}
    content = {
        FILES[0]: {"processor_class": "Gr00tN1d7Processor", "processor_kwargs": kwargs},
        FILES[1]: files.statistics,
        FILES[2]: dict(sorted(files.slots.items(), key=lambda item: (item[1], item[0]))),
    }
    for name, value in content.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    return list(FILES)


def applied(changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` without those that are None.

    Raises:
        ConfigError: an unknown setting.
    """
    unknown = sorted(set(changes) - set(DEFAULTS) - {"extra_augmentation_config"})
    if unknown:
        raise ConfigError(f"Unknown processor setting: {', '.join(unknown)}.", fix=f"known: {', '.join(DEFAULTS)}")
    return {key: value for key, value in changes.items() if value is not None}


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read.",
            why=str(error),
            fix="give a checkpoint that holds its processor files, beside config.json or in processor/",
        ) from error
