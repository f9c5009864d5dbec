"""DiT4DiT as shapes: networks on the meta device from their configurations, a batch without data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vla_backend import Backend
from vla_dit4dit.action_head import FlowMatchingActionHead
from vla_dit4dit.config import BackboneConfig
from vla_dit4dit.cosmos import CosmosParts
from vla_dit4dit.data.selection import select_datasets
from vla_dit4dit.errors import PipelineError
from vla_dit4dit.model import DiT4DiT, clip_frames
from vla_dit4dit.tiny import build_scheduler
from vla_train.data.config import RobotConfig
from vla_train.estimate.outline import Outline

#: Cosmos-Predict2.5-2B with Cosmos-Reason1-7B (a Qwen2.5-VL-7B) and the VAE of Wan 2.1, for hosts without its files.
PUBLISHED: dict[str, dict[str, Any]] = {
    "transformer": {
        "in_channels": 17,
        "out_channels": 16,
        "num_attention_heads": 16,
        "attention_head_dim": 128,
        "num_layers": 28,
        "mlp_ratio": 4.0,
        "text_embed_dim": 1024,
        "adaln_lora_dim": 256,
        "max_size": (128, 240, 240),
        "patch_size": (1, 2, 2),
        "rope_scale": (1.0, 3.0, 3.0),
        "concat_padding_mask": True,
        "extra_pos_embed_type": None,
        "use_crossattn_projection": True,
        "crossattn_proj_in_channels": 100352,
        "encoder_hidden_states_channels": 1024,
    },
    "vae": {"base_dim": 96, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2},
    "text_encoder": {
        "text_config": {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        },
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
    },
}
#: Hub ids whose networks have those sizes.
_PUBLISHED_NAME = "Cosmos-Predict2.5-2B"


def outline(config: Any, backend: Backend) -> Outline:
    """See `ModelEntry.outline`; reads the pipeline's configuration files if they are there.

    Raises:
        PipelineError: there are none, and the pipeline is none whose sizes are known.
    """
    section, data = config.model, config.data
    section.validate()
    notes: list[str] = []
    parts, text_width = _parts(section.backbone, notes)
    # Built without its head, whose weights would be real and drawn at random; it is added below, as shapes.
    backbone = dataclasses.replace(section.backbone, prompt_disk_cache=None, latent_cache=False)
    mode = "video" if section.mode == "joint" else section.mode
    plain = dataclasses.replace(section, mode="video", backbone=backbone)
    frames = clip_frames(data.video_delta_indices, data.action_video_freq_ratio)
    model = DiT4DiT(plain, parts, backend, clip_frames=frames)
    model.config = section
    if section.mode != "video":
        with torch.device("meta"):
            width = section.action_head.cross_attention_dim or model.backbone_interface.extractor.width
            model.action_model = FlowMatchingActionHead(section.action_head, width)
    for network in model.frozen().values():
        network.requires_grad_(False)
    model.train()

    # Prompts come out of the cache, as in all steps but the first ones.
    prompts, dtype = model.backbone_interface.extractor.prompts, getattr(torch, _frozen_dtype(section.backbone))
    shape = (section.backbone.max_sequence_length, text_width)
    kept = {}
    if section.backbone.train_text_encoder and mode != "action":
        prompts.token_ids = lambda instruction: torch.zeros(1, shape[0], dtype=torch.int64)  # type: ignore[method-assign]
    else:
        prompts._stored = lambda instruction: torch.empty(shape, dtype=dtype)  # type: ignore[method-assign]
        others = max(0, prompts.cache_size - data.batch_size)
        kept = {"prompt embeddings": others * shape[0] * shape[1] * dtype.itemsize}
        notes.append(f"the prompt cache is full: {prompts.cache_size} instructions (model.backbone.prompt_cache_size)")
    return Outline(model, _batch(config, notes), kept, tuple(notes))


def _frozen_dtype(config: BackboneConfig) -> str:
    return config.frozen_dtype or config.dtype


def _parts(config: BackboneConfig, notes: list[str]) -> tuple[CosmosParts, int]:
    from diffusers import AutoencoderKLWan, CosmosTransformer3DModel
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    sizes = _sizes(config, notes)
    text_config = Qwen2_5_VLConfig(**sizes["text_encoder"])
    with torch.device("meta"):
        transformer = CosmosTransformer3DModel.from_config(sizes["transformer"])
        vae = AutoencoderKLWan.from_config(sizes["vae"]).eval()
        text_encoder = Qwen2_5_VLForConditionalGeneration(text_config).eval()
    # torch's own: the library's warns about a position table in float32, which the published model does without.
    torch.nn.Module.to(transformer, getattr(torch, config.dtype))
    for network in (vae, text_encoder):
        torch.nn.Module.to(network, getattr(torch, _frozen_dtype(config)))
    text: Any = text_config.text_config
    width = text.num_hidden_layers * text.hidden_size
    return CosmosParts(text_encoder, None, transformer, vae, build_scheduler()), width


def _sizes(config: BackboneConfig, notes: list[str]) -> Mapping[str, dict[str, Any]]:
    folder = Path(config.path).expanduser()
    files = {name: folder / name / "config.json" for name in PUBLISHED}
    if all(file.is_file() for file in files.values()):
        return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items()}
    if _PUBLISHED_NAME in config.path:
        notes.append(f"{config.path} is not on this host; the sizes are those published for {_PUBLISHED_NAME}")
        return PUBLISHED
    raise PipelineError(
        f"The sizes of the video model '{config.path}' are not known.",
        why=f"there is no {next(file for file in files.values() if not file.is_file())}",
        fix=f"set model.backbone.path to a folder of a pipeline, or to nvidia/{_PUBLISHED_NAME}",
    )


def _batch(config: Any, notes: list[str]) -> dict[str, Any]:
    data, head = config.data, config.model.action_head
    entry, robot = select_datasets(data)[0]
    cameras = robot.video_keys
    if cameras is None:
        cameras = _cameras(Path(data.root) / entry.path, notes)
    wrist = sum("wrist" in name for name in cameras)
    primary = len(cameras) - wrist
    frames = clip_frames(data.video_delta_indices, data.action_video_freq_ratio) or len(robot.observation_indices)
    beside = len(cameras)
    if data.extra_views == "as_frames" and primary:
        frames, beside = frames * primary, 1 + wrist // primary
    height, width = data.image_size
    size = data.batch_size
    horizon = robot.action_horizon or head.action_horizon
    batch: dict[str, Any] = {
        "images": torch.empty(size, frames, 3, height, width * beside, device="meta"),
        "lang": [f"instruction {index}" for index in range(size)],
        "action": torch.empty(size, horizon, data.max_action_dim, device="meta"),
        "action_mask": torch.empty(size, horizon, data.max_action_dim, dtype=torch.bool, device="meta"),
    }
    if _has_state(robot):
        batch["state"] = torch.empty(size, 1, data.max_state_dim, device="meta")
    notes.append(f"a clip is {frames} frames of {height} x {width * beside} pixels")
    return batch


def _has_state(robot: RobotConfig) -> bool:
    return robot.state_keys is None or bool(robot.state_keys)


def _cameras(folder: Path, notes: list[str]) -> list[str]:
    try:
        found = json.loads((folder / "meta" / "modality.json").read_text(encoding="utf-8"))
        return list(found["video"])
    except (OSError, ValueError, KeyError):
        notes.append(f"{folder} is not on this host; one camera is assumed")
        return ["primary"]
