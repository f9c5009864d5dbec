"""A random GR00T N1.7 with the proportions of the released one, an eighth as wide.

Kept: the layers (24 of vision, 16 of text, 32 of the diffusion transformer, 4 on the features), two views of 256 x 256
pixels, 40 action steps, 32 embodiment slots, the width of a head, and the ratios of all widths and of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from vla_backend import Backend
from vla_groot.architecture import Architecture
from vla_groot.model import Groot

WIDTH, VISION, DIT, WORDS = 256, 128, 192, 18_992
IMAGE, START, TEXT = 5, 6, 20
TOKENS = 64  # of a view


def build(backend: Backend) -> Groot:
    """The model with the same random weights at every call; the backbone is frozen, as in published fine-tuning."""
    dit = {"num_attention_heads": DIT // 48, "attention_head_dim": 48, "num_layers": 32, "output_dim": 128}
    attention = {"num_layers": 4, "num_attention_heads": WIDTH // 64, "attention_head_dim": 64, "final_dropout": True}
    config = Architecture().updated(
        {
            "select_layer": 16,
            "backbone_embedding_dim": WIDTH,
            "input_embedding_dim": DIT,
            "hidden_size": 128,
            "diffusion_model_cfg": {**dit, "dropout": 0.0},
            "vl_self_attention_cfg": {**attention, "dropout": 0.0},
            "max_state_dim": 16,
            "max_action_dim": 16,
            "state_dropout_prob": 0.0,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Groot(config, _qwen(), backend)


def batch(size: int) -> dict[str, Any]:
    """A random batch of one robot as the loader gives it: two views and a text."""
    random = torch.Generator().manual_seed(1)
    view = [START, *[IMAGE] * TOKENS, START + 1]
    text = torch.randint(100, WORDS, (size, TEXT), generator=random)
    ids = torch.cat([torch.tensor([view * 2]).expand(size, -1), text], dim=1)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.rand(size * 2 * 4 * TOKENS, 1536, generator=random) * 2 - 1,
        "image_grid_thw": torch.tensor([[1, 16, 16]]).expand(size * 2, -1),
        "state": torch.rand(size, 1, 16, generator=random) * 2 - 1,
        "action": torch.rand(size, 40, 16, generator=random) * 2 - 1,
        "action_mask": torch.ones(size, 40, 16),
        "embodiment_id": torch.full((size,), 2),
        "embodiment_ids": [2] * size,
    }


def _qwen() -> dict[str, Any]:
    return {
        "model_type": "qwen3_vl",
        "image_token_id": IMAGE,
        "video_token_id": IMAGE + 3,
        "vision_start_token_id": START,
        "vision_end_token_id": START + 1,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "vocab_size": WORDS,
            "hidden_size": WIDTH,
            "intermediate_size": 3 * WIDTH,
            "num_hidden_layers": 16,
            "num_attention_heads": WIDTH // 128,
            "num_key_value_heads": WIDTH // 256,
            "head_dim": 128,
            "max_position_embeddings": 4096,
            "rope_theta": 5000000.0,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "depth": 24,
            "hidden_size": VISION,
            "intermediate_size": 4 * VISION,
            "num_heads": VISION // 64,
            "num_position_embeddings": 2304,
            "out_hidden_size": WIDTH,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "deepstack_visual_indexes": [5, 11, 17],
        },
    }
