"""GR00T as shapes: the architecture on the meta device, a batch without data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vla_backend import Backend
from vla_groot.architecture import Architecture
from vla_groot.backbone_files import KNOWN, BackboneFiles
from vla_groot.batch import collate
from vla_groot.build import build_processor, new_architecture, new_processor, recompute
from vla_groot.checkpoint import build_empty, keep_backbone_low
from vla_groot.config import GrootConfig
from vla_groot.errors import BackboneError, CheckpointError
from vla_groot.hub import find_folder, on_this_host
from vla_groot.images import stack_views
from vla_groot.modality import Embodiment, ModalityConfig
from vla_groot.processor import GrootProcessor
from vla_groot.sources import open_dataset
from vla_groot.vision_language import PatchSettings, formalize
from vla_train.estimate.outline import Outline

#: What the released checkpoint's config.json changes of the defaults.
RELEASED: dict[str, Any] = {
    "select_layer": 16,
    "diffusion_model_cfg": {"num_layers": 32},
    "vl_self_attention_cfg": {
        "positional_embeddings": None,
        "num_layers": 4,
        "num_attention_heads": 32,
        "attention_head_dim": 64,
        "dropout": 0.2,
        "final_dropout": True,
    },
}
#: Checkpoints with that architecture, which fine-tuning keeps.
_RELEASED_NAME = "GR00T-N1.7"
#: Tokens of an instruction and of the chat template around it, where the tokenizer is not on this host.
_TEXT = 24


def outline(config: Any, backend: Backend) -> Outline:
    """See `ModelEntry.outline`; reads the small files of checkpoint, backbone and data that are on this host.

    Raises:
        CheckpointError, BackboneError: the architecture is neither on this host nor a published one.
        DataError, GrootError: what is on this host does not fit.
    """
    section: GrootConfig = config.model
    section.validate()
    notes: list[str] = []
    checkpoint = on_this_host(section.base_model, revision=section.base_revision) if section.base_model else None
    architecture = _architecture(section, checkpoint, notes)
    files, qwen = _backbone(section, architecture, checkpoint, notes)
    model = build_empty(architecture, qwen, backend)
    keep_backbone_low(model)
    if section.gradient_checkpointing:
        recompute(model)
    if section.feature_cache:
        notes.append("all features are computed, as if none were kept yet (model.feature_cache)")
    if checkpoint or not section.base_model:
        processor = build_processor(section, checkpoint)
    else:
        processor = new_processor(section, architecture, files)
    processor.vlm.files = files
    sample = _sample(config, processor, qwen, notes)
    return Outline(model.train(), collate([sample] * config.data.batch_size), notes=tuple(notes))


def _architecture(section: GrootConfig, checkpoint: Path | None, notes: list[str]) -> Architecture:
    if not section.base_model:
        return new_architecture(section)
    if checkpoint is not None:
        return Architecture.read(checkpoint).updated(section.changes())
    if _RELEASED_NAME.lower() not in section.base_model.lower():
        raise CheckpointError(
            f"The sizes of '{section.base_model}' are not known.",
            why="it is neither a folder nor downloaded on this host, and no published checkpoint's name",
            fix=f"set model.base_model to a folder with its config.json, or to nvidia/{_RELEASED_NAME}-3B",
        )
    notes.append(f"{section.base_model} is not on this host; the sizes are those of nvidia/{_RELEASED_NAME}-3B")
    return Architecture().updated(RELEASED).updated(section.changes())


def _backbone(
    section: GrootConfig, architecture: Architecture, checkpoint: Path | None, notes: list[str]
) -> tuple[BackboneFiles, dict[str, Any]]:
    """Its files, of this host if they are there, and the content of its config.json."""
    name = section.backbone or architecture.model_name
    near = None if section.backbone else checkpoint
    files = BackboneFiles.of_checkpoint(name, architecture.model_revision, near)
    folder = on_this_host(files.name, files.near, files.revision)
    if folder is not None:
        files = BackboneFiles(str(folder))
        return files, files.config()
    last = {known.rpartition("/")[2].lower(): known for known in KNOWN}.get(Path(name).name.lower())
    if last is None:
        raise BackboneError(
            f"The sizes of the backbone '{name}' are not known.",
            why=f"it is neither a folder nor downloaded on this host, and none of {', '.join(KNOWN)}",
            fix="set model.backbone to a folder with its config.json",
        )
    notes.append(f"{name} is not on this host; the sizes are those published for {last}")
    return BackboneFiles(last), BackboneFiles(last).config()


@dataclass
class _Seen:
    """What a sample of one dataset shows the model: pictures (height, width) by view, and an instruction."""

    tag: str
    embodiment: Embodiment
    sizes: list[tuple[int, int]]
    text: str = ""


def _sample(config: Any, processor: GrootProcessor, qwen: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """One as the dataset gives it, of the dataset whose samples have most tokens."""
    entries = config.data.datasets
    samples = [
        _encoded(_seen(config, path, robot, processor, notes), processor, qwen)
        for path, robot in ([(entry.path, entry.robot) for entry in entries] or [("", "auto")])
    ]
    longest = max(samples, key=lambda sample: len(sample["input_ids"]))
    if not all(sample["known"] for sample in samples):
        notes.append(f"the tokenizer is not on this host; {_TEXT} tokens of text are assumed")
    if len(samples) > 1:
        notes.append("all samples of a batch are like those of the dataset with most tokens")
    images, tokens = len(longest["image_grid_thw"]), len(longest["input_ids"])
    _, rows, columns = longest["image_grid_thw"][0].tolist()
    size = int(qwen["vision_config"]["patch_size"])
    notes.append(f"a sample is {tokens} tokens: {images} images of {rows * size} x {columns * size} pixels, and text")
    return longest


def _seen(config: Any, path: str, robot: str, processor: GrootProcessor, notes: list[str]) -> _Seen:
    section: GrootConfig = config.model
    tag = processor.tag(section.embodiment_tag if robot == "auto" else robot)
    embodiment = processor.embodiment(tag) if tag in processor.embodiments else None
    folder, edge = Path(config.data.root) / path, processor.images.edge
    if path and (folder / "meta" / "info.json").is_file():
        skip = config.data.skip_missing_episodes
        dataset, read, embodiment = open_dataset(
            folder, tag, embodiment, horizon=section.action_steps, skip_missing=skip
        )
        features = dataset.info.get("features", {})
        sizes = [_pixels(features.get(dataset.modality.video[name], {})) or (edge, edge) for name in read.cameras]
        texts = [text for episode in dataset.listed for text in episode.tasks] + list(dataset.tasks.values())
        return _Seen(tag, embodiment, sizes, max(texts, key=len, default=""))
    if embodiment is None:
        embodiment = {
            "video": ModalityConfig((0,), ("primary",)),
            "state": ModalityConfig((0,), ("state",)),
            "action": ModalityConfig(tuple(range(section.action_steps)), ("action",)),
        }
    views = embodiment["video"].modality_keys
    where = f"{folder} is not on this host" if path else "no dataset is named"
    notes.append(f"{where}; assumed: square pictures of {', '.join(views)}")
    return _Seen(tag, embodiment, [(edge, edge)] * len(views))


def _pixels(feature: dict[str, Any]) -> tuple[int, int] | None:
    """Height and width of a camera's pictures from its entry in `meta/info.json`; None if it does not say."""
    shape, names = feature.get("shape") or [], feature.get("names") or ["height", "width", "channel"]
    named = dict(zip(names, shape, strict=False)) if isinstance(names, list) else {}
    return (int(named["height"]), int(named["width"])) if {"height", "width"} <= named.keys() else None


def _encoded(seen: _Seen, processor: GrootProcessor, qwen: dict[str, Any]) -> dict[str, Any]:
    """A sample of zeros as the dataset gives it; `known` says whether the tokenizer is here."""
    settings, video = processor.settings, seen.embodiment["video"]
    frames = len(video.delta_indices)
    views = [processor.images(np.zeros((frames, height, width, 3), np.uint8)) for height, width in seen.sizes]
    images = stack_views(views, video.modality_keys).reshape(-1, *views[0].shape[1:])
    known = find_folder(processor.vlm.files.name) is not None
    if known:
        text = formalize(seen.text) if settings["formalize_language"] else seen.text
        encoded = processor.vlm([processor.vlm.prompt(text, len(images))], list(images))
        ids, pixels, grids = encoded["input_ids"][0], encoded["pixel_values"], encoded["image_grid_thw"]
    else:
        vision = qwen["vision_config"]
        merge = int(vision["spatial_merge_size"])
        cut = PatchSettings(int(vision["patch_size"]), int(vision["temporal_patch_size"]), merge)
        patches, grid = cut.patches(images)
        pixels, grids = patches.flatten(0, 1), torch.tensor([grid] * len(images))
        # Every image stands between two marks.
        row = [0, *[int(qwen["image_token_id"])] * (math.prod(grid) // merge**2), 0]
        ids = torch.tensor(row * len(images) + [0] * _TEXT)
    states = len(seen.embodiment["state"].delta_indices) if "state" in seen.embodiment else 1
    chunk = np.zeros((settings["max_action_horizon"], settings["max_action_dim"]), np.float32)
    return {
        "state": np.zeros((states, settings["max_state_dim"]), np.float32),
        "action": chunk,
        "action_mask": chunk,
        "embodiment_id": processor.slots[seen.tag],
        "input_ids": ids,
        "pixel_values": torch.empty_like(pixels, device="meta"),
        "image_grid_thw": grids,
        "pad_token_id": 0,
        "sample_id": "shapes",
        "known": known,
    }
