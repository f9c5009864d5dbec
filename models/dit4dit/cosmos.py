"""Loading the parts of a Cosmos-Predict2.5 pipeline in diffusers format, from a folder or the hub.

The parts are loaded one by one with their own classes. The pipeline object is not needed, and its guard model, which
lives in a separate package, is not either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vla_backend import AttentionNeeds, Backend
from vla_dit4dit.config import BackboneConfig
from vla_dit4dit.errors import PipelineError
from vla_dit4dit.late_encoder import LateTextEncoder
from vla_dit4dit.prompt_store import PromptStore

if TYPE_CHECKING:
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
    from diffusers.models.transformers.transformer_cosmos import CosmosTransformer3DModel
    from transformers import Qwen2_5_VLForConditionalGeneration

PIPELINE_CLASS = "Cosmos2_5_PredictBasePipeline"
# Folder of each part and the class it must have; any tokenizer and scheduler of the right interface will do.
PARTS = {
    "text_encoder": "Qwen2_5_VLForConditionalGeneration",
    "tokenizer": None,
    "transformer": "CosmosTransformer3DModel",
    "vae": "AutoencoderKLWan",
    "scheduler": None,
}


@dataclass
class CosmosParts:
    """The parts of the pipeline that the model uses."""

    text_encoder: Qwen2_5_VLForConditionalGeneration | LateTextEncoder
    tokenizer: Any
    transformer: CosmosTransformer3DModel
    vae: AutoencoderKLWan
    scheduler: Any
    #: Where the text encoder's weights are; None if they come from no folder.
    text_encoder_folder: Path | None = None


def load_parts(config: BackboneConfig, backend: Backend) -> CosmosParts:
    """Load tokenizer, text encoder, transformer, VAE and scheduler.

    Raises:
        PipelineError: nothing there, not a Cosmos-Predict2.5 pipeline, a part that does not load, a transformer that
            this model cannot drive, or `extract_layer` out of range.
    """
    import diffusers
    import transformers

    folder = _folder(config)
    index = _read_index(folder)
    dtype = getattr(torch, config.dtype)
    frozen_dtype = getattr(torch, config.frozen_dtype or config.dtype)
    parts = CosmosParts(
        tokenizer=_load(folder, "tokenizer", transformers.AutoTokenizer),
        text_encoder=_text_encoder(folder, config, backend, dtype if config.train_text_encoder else frozen_dtype),
        transformer=_load(folder, "transformer", diffusers.CosmosTransformer3DModel, torch_dtype=dtype),
        vae=_load(folder, "vae", diffusers.AutoencoderKLWan, torch_dtype=frozen_dtype),
        scheduler=_load(folder, "scheduler", getattr(diffusers, index["scheduler"][1])),
        text_encoder_folder=folder / "text_encoder",
    )
    _check_transformer(parts.transformer, config)
    return parts


def prompt_store(config: BackboneConfig) -> PromptStore | None:
    """Where prompt embeddings are kept between runs, if they are."""
    if config.prompt_disk_cache is None or config.train_text_encoder:
        return None
    return PromptStore(config.prompt_disk_cache, int(config.prompt_disk_cache_gb * 1e9))


def _text_encoder(
    folder: Path, config: BackboneConfig, backend: Backend, dtype: torch.dtype
) -> Qwen2_5_VLForConditionalGeneration | LateTextEncoder:
    """The text encoder; one whose embeddings were kept before is loaded when a prompt comes that is new."""
    import transformers

    def load() -> Qwen2_5_VLForConditionalGeneration:
        needs = AttentionNeeds(head_dim=128, causal=True, mask="additive", training=False)
        return _load(
            folder,
            "text_encoder",
            transformers.Qwen2_5_VLForConditionalGeneration,
            dtype=dtype,
            attn_implementation=backend.attention_impl(needs),
        )

    store = prompt_store(config)
    known = store.encoder_of(folder / "text_encoder", dtype) if store is not None else None
    return LateTextEncoder(load, known) if known else load()


def _folder(config: BackboneConfig) -> Path:
    """The pipeline's folder; that of the hub's cache for a hub id. A folder has no revision."""
    folder = Path(config.path).expanduser()
    if folder.is_dir():
        return folder
    if config.path.startswith(("/", "./", "../", "~")) or config.path.count("/") != 1:
        raise PipelineError(
            f"There is no video model at '{config.path}'.",
            why="the folder does not exist, and a hub id has the form owner/name",
            fix="set model.backbone.path to a folder with a Cosmos-Predict2.5 pipeline in diffusers format",
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                config.path,
                revision=config.revision,
                local_files_only=config.local_files_only,
                allow_patterns=["model_index.json", *(f"{part}/*" for part in PARTS)],
            )
        )
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"The video model '{config.path}' (revision {config.revision}) cannot be read.",
            why=f"no folder of this name exists, and from the hub: {error}",
            fix="download it first, or set model.backbone.local_files_only=false to download it now",
        ) from error


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        index = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"'{folder}' is not a diffusers pipeline.",
            why=f"model_index.json is missing or unreadable: {error}",
            fix="point model.backbone.path to the folder that holds model_index.json and one folder per network",
        ) from error
    problems = []
    if index.get("_class_name") != PIPELINE_CLASS:
        problems.append(f"the pipeline class is {index.get('_class_name')}, not {PIPELINE_CLASS}")
    for part, name in PARTS.items():
        found = (index.get(part) or [None, None])[1]
        if found is None or (name and found != name):
            problems.append(f"{part} is {found}, not {name or 'given'}")
    if problems:
        raise PipelineError(
            f"'{folder}' is not a Cosmos-Predict2.5 pipeline.",
            why="; ".join(problems),
            fix="use nvidia/Cosmos-Predict2.5-2B in diffusers format, or a pipeline of the same classes",
        )
    return index


def _load(folder: Path, part: str, part_class: Any, **kwargs: Any) -> Any:
    try:
        return part_class.from_pretrained(str(folder / part), local_files_only=True, **kwargs)
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"The {part} of the video model '{folder}' does not load.",
            why=str(error),
            fix=f"check that {part}/ is complete and that the installed diffusers and transformers can read it",
        ) from error


def _check_transformer(transformer: CosmosTransformer3DModel, config: BackboneConfig) -> None:
    settings = transformer.config
    blocks = len(transformer.transformer_blocks)
    if not 0 <= config.extract_layer < blocks:
        raise PipelineError(
            f"model.backbone.extract_layer is {config.extract_layer}.",
            why=f"the video transformer has blocks 0 to {blocks - 1}",
            fix=f"choose a block below {blocks}",
        )
    if settings["in_channels"] != settings["out_channels"] + 1:
        raise PipelineError(
            "The video transformer takes no condition mask.",
            why=f"it has {settings['in_channels']} input channels for {settings['out_channels']} latent channels",
            fix="use a Cosmos-Predict2.5 transformer: its input is the latent channels and one mask channel",
        )
    if settings.get("img_context_dim_in") or settings["patch_size"][0] != 1:
        raise PipelineError(
            "The video transformer is of another kind than Cosmos-Predict2.5.",
            why=f"img_context_dim_in={settings.get('img_context_dim_in')}, patch_size={list(settings['patch_size'])}",
            fix="use a transformer without image context and with one latent frame per patch",
        )
