"""Loading the parts of a Cosmos-Predict2.5 pipeline in diffusers format, from a folder or the hub.

The parts are loaded one by one with their own classes. The pipeline object is not needed, and its guard model, which
lives in a separate package, is not either.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vla_backend import AttentionNeeds, Backend
from vla_dit4dit.config import BackboneConfig
from vla_dit4dit.errors import PipelineError

PIPELINE_CLASS = "Cosmos2_5_PredictBasePipeline"
PART_CLASSES = {
    "text_encoder": "Qwen2_5_VLForConditionalGeneration",
    "transformer": "CosmosTransformer3DModel",
    "vae": "AutoencoderKLWan",
}


@dataclass
class CosmosParts:
    """The parts of the pipeline that the model uses."""

    text_encoder: nn.Module
    tokenizer: Any
    transformer: nn.Module
    vae: nn.Module
    scheduler: Any


def load_parts(config: BackboneConfig, backend: Backend) -> CosmosParts:
    """Load tokenizer, text encoder, transformer, VAE and scheduler.

    Raises:
        PipelineError: nothing there, not a Cosmos-Predict2.5 pipeline, a part that does not load, a transformer that
            this model cannot drive, or `extract_layer` out of range.
    """
    import diffusers
    import transformers

    source = _source(config)
    index = _read_index(config, source)
    dtype = getattr(torch, config.dtype)
    frozen_dtype = getattr(torch, config.frozen_dtype or config.dtype)
    attention = backend.attention_impl(AttentionNeeds(head_dim=128, causal=True, mask="additive", training=False))
    parts = CosmosParts(
        tokenizer=_load("tokenizer", transformers.AutoTokenizer, config.path, source),
        text_encoder=_load(
            "text_encoder",
            transformers.Qwen2_5_VLForConditionalGeneration,
            config.path,
            source,
            dtype=dtype if config.train_text_encoder else frozen_dtype,
            attn_implementation=attention,
        ),
        transformer=_load("transformer", diffusers.CosmosTransformer3DModel, config.path, source, torch_dtype=dtype),
        vae=_load("vae", diffusers.AutoencoderKLWan, config.path, source, torch_dtype=frozen_dtype),
        scheduler=_load("scheduler", getattr(diffusers, index["scheduler"][1]), config.path, source),
    )
    _check_transformer(parts.transformer, config)
    return parts


def _source(config: BackboneConfig) -> dict[str, Any]:
    """Arguments of every `from_pretrained`; a folder has no revision."""
    if Path(config.path).expanduser().is_dir():
        return {"local_files_only": True}
    if config.path.startswith(("/", "./", "../", "~")) or config.path.count("/") != 1:
        raise PipelineError(
            f"There is no video model at '{config.path}'.",
            why="the folder does not exist, and a hub id has the form owner/name",
            fix="set model.backbone.path to a folder with a Cosmos-Predict2.5 pipeline in diffusers format",
        )
    return {"revision": config.revision, "local_files_only": config.local_files_only}


def _read_index(config: BackboneConfig, source: dict[str, Any]) -> dict[str, Any]:
    from diffusers import DiffusionPipeline

    try:
        index = DiffusionPipeline.load_config(str(Path(config.path).expanduser()), **source)
    except (OSError, ValueError) as error:
        if "revision" not in source:
            raise PipelineError(
                f"'{config.path}' is not a diffusers pipeline.",
                why=f"model_index.json is missing or unreadable: {error}",
                fix="point model.backbone.path to the folder that holds model_index.json and one folder per network",
            ) from error
        raise PipelineError(
            f"The video model '{config.path}' (revision {config.revision}) cannot be read.",
            why=f"no folder of this name exists, and from the hub: {error}",
            fix="download it first, or set model.backbone.local_files_only=false to download it now",
        ) from error
    problems = []
    if index.get("_class_name") != PIPELINE_CLASS:
        problems.append(f"the pipeline class is {index.get('_class_name')}, not {PIPELINE_CLASS}")
    for part, name in PART_CLASSES.items():
        found = (index.get(part) or [None, None])[1]
        if found != name:
            problems.append(f"{part} is {found}, not {name}")
    if problems:
        raise PipelineError(
            f"'{config.path}' is not a Cosmos-Predict2.5 pipeline.",
            why="; ".join(problems),
            fix="use nvidia/Cosmos-Predict2.5-2B in diffusers format, or a pipeline of the same classes",
        )
    return index


def _load(part: str, part_class: Any, path: str, source: dict[str, Any], **kwargs: Any) -> Any:
    try:
        return part_class.from_pretrained(str(Path(path).expanduser()), subfolder=part, **source, **kwargs)
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"The {part} of the video model '{path}' does not load.",
            why=str(error),
            fix=f"check that {part}/ is complete and that the installed diffusers and transformers can read it",
        ) from error


def _check_transformer(transformer: nn.Module, config: BackboneConfig) -> None:
    settings = transformer.config
    blocks = len(transformer.transformer_blocks)
    if not 0 <= config.extract_layer < blocks:
        raise PipelineError(
            f"model.backbone.extract_layer is {config.extract_layer}.",
            why=f"the video transformer has blocks 0 to {blocks - 1}",
            fix=f"choose a block below {blocks}",
        )
    if settings.in_channels != settings.out_channels + 1:
        raise PipelineError(
            "The video transformer takes no condition mask.",
            why=f"it has {settings.in_channels} input channels for {settings.out_channels} latent channels",
            fix="use a Cosmos-Predict2.5 transformer: its input is the latent channels and one mask channel",
        )
    if settings.get("img_context_dim_in") or settings.patch_size[0] != 1:
        raise PipelineError(
            "The video transformer is of another kind than Cosmos-Predict2.5.",
            why=f"img_context_dim_in={settings.get('img_context_dim_in')}, patch_size={list(settings.patch_size)}",
            fix="use a transformer without image context and with one latent frame per patch",
        )
