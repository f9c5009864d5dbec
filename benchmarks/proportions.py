"""A random DiT4DiT with the proportions of the published one, narrow enough to run in seconds on one core.

Kept from Cosmos-Predict2.5-2B and upstream's LIBERO configuration: 28 transformer blocks with the features taken after
block 17, 28 text layers over 512 tokens, the Wan VAE's blocks, 16 action blocks, 4 copies per sample, 224 x 448 pixels,
5 frames. The widths are chosen so that text encoder, VAE and transformer share the floating-point operations about as
they do at full size.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import AutoencoderKLWan, CosmosTransformer3DModel
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from vla_backend import Backend
from vla_dit4dit.config import ActionHeadConfig, BackboneConfig, DiT4DiTConfig
from vla_dit4dit.cosmos import CosmosParts
from vla_dit4dit.model import DiT4DiT
from vla_dit4dit.tiny import build_scheduler, build_tokenizer

FRAMES, HEIGHT, WIDTH = 5, 224, 448
WIDTH_TRANSFORMER, WIDTH_TEXT, WIDTH_VAE = 128, 288, 8
TEXT_LAYERS = 28
#: GFLOP per sample at full size: text encoder with its unused head, transformer forward at 784 tokens, VAE of 5 frames.
FULL_SIZE_GFLOP = {"text": 7345.0, "transformer": 3316.0, "vae": 2684.0}


def build(backend: Backend, mode: str = "joint", frames: int = FRAMES, **backbone: Any) -> DiT4DiT:
    """The model with the same random weights at every call."""
    config = DiT4DiTConfig(
        mode=mode,
        backbone=BackboneConfig(path="random", prompt_disk_cache=None, **backbone),
        action_head=ActionHeadConfig(
            num_attention_heads=4, attention_head_dim=12, output_dim=160, hidden_size=160, dropout=0.0
        ),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return DiT4DiT(config, _parts(), backend, clip_frames=frames)


def batch(size: int, frames: int = FRAMES) -> dict[str, Any]:
    """A random batch as the loader gives it; every sample has its own instruction."""
    generator = torch.Generator().manual_seed(1)
    return {
        "images": torch.rand(size, frames, 3, HEIGHT, WIDTH, generator=generator),
        "lang": [f"put the red block number {index} into the basket" for index in range(size)],
        "action": torch.rand(size, 8, 8, generator=generator) * 2 - 1,
        "action_mask": torch.ones(size, 8, 8, dtype=torch.bool),
        "state": torch.rand(size, 1, 16, generator=generator) * 2 - 1,
    }


def _parts() -> CosmosParts:
    tokenizer = build_tokenizer()
    return CosmosParts(
        text_encoder=_text_encoder(tokenizer),
        tokenizer=tokenizer,
        transformer=CosmosTransformer3DModel(
            in_channels=17,
            out_channels=16,
            num_attention_heads=2,
            attention_head_dim=WIDTH_TRANSFORMER // 2,
            num_layers=28,
            mlp_ratio=4.0,
            text_embed_dim=WIDTH_TRANSFORMER // 2,
            adaln_lora_dim=WIDTH_TRANSFORMER // 8,
            max_size=(128, 240, 240),
            patch_size=(1, 2, 2),
            rope_scale=(1.0, 3.0, 3.0),
            concat_padding_mask=True,
            extra_pos_embed_type=None,
            use_crossattn_projection=True,
            crossattn_proj_in_channels=TEXT_LAYERS * WIDTH_TEXT,
            encoder_hidden_states_channels=WIDTH_TRANSFORMER // 2,
        ),
        vae=AutoencoderKLWan(base_dim=WIDTH_VAE, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2).eval(),
        scheduler=build_scheduler(),
    )


def _text_encoder(tokenizer: Any) -> Qwen2_5_VLForConditionalGeneration:
    """Qwen2.5-VL-7B's ratios: intermediate 5.3 x width, 28 query heads on 4 key heads; the head 7.6 % of the work."""
    special = tokenizer.convert_tokens_to_ids("<|im_end|>")
    heads = 9
    size = WIDTH_TEXT // heads
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 14_000,
            "bos_token_id": None,
            "eos_token_id": special,
            "pad_token_id": tokenizer.pad_token_id,
            "hidden_size": WIDTH_TEXT,
            "intermediate_size": 1520,
            "num_hidden_layers": TEXT_LAYERS,
            "num_attention_heads": heads,
            "num_key_value_heads": 1,
            "max_position_embeddings": 4096,
            "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": [size // 8, 3 * size // 16, 3 * size // 16]},
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": WIDTH_TEXT,
            "patch_size": 4,
            "spatial_merge_size": 1,
            "window_size": 8,
            "fullatt_block_indexes": [0],
        },
        image_token_id=special,
        video_token_id=special,
        vision_start_token_id=special,
        vision_end_token_id=special,
    )
    return Qwen2_5_VLForConditionalGeneration(config).eval()
