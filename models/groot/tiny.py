"""A small random GR00T N1.7 checkpoint, for demonstrations and tests without a download.

    python -m vla_groot.tiny runs/tiny_groot

The hub's layout with everything in it: config.json, weights, processor files, and the small files of a Qwen3-VL
backbone, which is as random and as small as the rest. It loads like the published checkpoint.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import PreTrainedTokenizerFast

from vla_backend import Backend
from vla_groot.architecture import Architecture
from vla_groot.backbone_files import SUBFOLDER, BackboneFiles
from vla_groot.category import CategoryLinear
from vla_groot.checkpoint import save_checkpoint
from vla_groot.model import Groot
from vla_groot.processor import GrootProcessor

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# Words of robot instructions; the tokenizer falls back to bytes for everything else.
CORPUS = (
    "user\nassistant\nsystem\n",
    "pick up the red block and place it on the plate, open the drawer, close the door, push the button from the top, "
    "press the lever, put the bottle into the basket, stack the cube, move the gripper to the left, right, front, back",
)


@dataclass(frozen=True)
class TinySpec:
    """Sizes of the checkpoint.

    Attributes:
        width: of text, features and diffusion transformer; a multiple of 32.
        vision_width, vision_layers: of the vision tower; the width is a multiple of 16.
        layers: of the diffusion transformer, an even number.
        image: pixels of the shorter side of a view; a token is 16 x 16 of them.
        horizon: action steps.
        max_dim: widest state and action.
        seed: of all weights.
    """

    width: int = 128
    vision_width: int = 96
    vision_layers: int = 3
    layers: int = 8
    image: int = 64
    horizon: int = 8
    max_dim: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name, unit in (("width", 32), ("vision_width", 16), ("layers", 2), ("image", 16)):
            if getattr(self, name) % unit:
                raise ValueError(f"{name} must be a multiple of {unit}, not {getattr(self, name)}")


def save(out: Path, backend: Backend, spec: TinySpec = TinySpec()) -> None:
    """Write the checkpoint to the folder `out`; leaves torch's random state as it was."""
    backbone = out / SUBFOLDER
    backbone.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(backbone)
    (backbone / "config.json").write_text(json.dumps(qwen_config(spec, tokenizer), indent=2) + "\n")
    (backbone / "preprocessor_config.json").write_text(json.dumps(preprocessor_config(spec), indent=2) + "\n")
    architecture = architecture_of(spec)
    files = BackboneFiles.of_checkpoint(architecture.model_name, None, out)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        model = Groot(architecture, files.config(), backend)
        _arrange(model)
    save_checkpoint(out, architecture, model.state_dict())
    settings = {
        "shortest_image_edge": spec.image,
        "crop_fraction": 1.0,
        "max_state_dim": spec.max_dim,
        "max_action_dim": spec.max_dim,
        "max_action_horizon": spec.horizon,
        "model_name": architecture.model_name,
    }
    GrootProcessor({}, files, settings=settings).save(out)


def _arrange(model: Groot) -> None:
    """Make random weights of this width of use without pre-training.

    Vision: positions are as strong as content, and the feed-forward layers start larger than usual, so that the
    features tell where something is. Head: its usual deviation of 0.02 suits a width of 1536; at this one the noisy
    actions would hardly reach the diffusion transformer.
    """
    visual, head = model.backbone.qwen.visual, model.action_head
    nn.init.normal_(visual.pos_embed.weight, std=0.5)
    for block in visual.blocks:
        for layer, gain in ((block.mlp.linear_fc1, 2.0), (block.mlp.linear_fc2, 1.0)):
            nn.init.normal_(layer.weight, std=gain / layer.in_features**0.5)
    for layer in head.modules():
        if isinstance(layer, CategoryLinear):
            nn.init.normal_(layer.W, std=layer.W.shape[1] ** -0.5)
    if head.position_embedding is not None:
        nn.init.normal_(head.position_embedding.weight, std=0.5)


def architecture_of(spec: TinySpec) -> Architecture:
    """The published architecture at other sizes, with padding hidden, which a new head never sees."""
    heads = {"num_attention_heads": spec.width // 32, "attention_head_dim": 32, "dropout": 0.0}
    return Architecture().updated(
        {
            "model_name": "tiny/Qwen3-VL",
            "select_layer": 2,
            "backbone_embedding_dim": spec.width,
            "input_embedding_dim": spec.width,
            "hidden_size": spec.width,
            "diffusion_model_cfg": {"num_layers": spec.layers, "output_dim": spec.width, **heads},
            "vl_self_attention_cfg": {"num_layers": 1, "final_dropout": True, **heads},
            "max_state_dim": spec.max_dim,
            "max_action_dim": spec.max_dim,
            "action_horizon": spec.horizon,
            "max_seq_len": 64,
            # With few blocks, one of them reads the instruction and the others the images.
            "attend_text_every_n_blocks": spec.layers // 2,
            "state_dropout_prob": 0.0,
            "mask_feature_padding": True,
            "strict_action_padding_mask": True,
        }
    )


def qwen_config(spec: TinySpec, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Content of the backbone's `config.json`."""
    tokens = {token: cast("int", tokenizer.convert_tokens_to_ids(token)) for token in SPECIAL}
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": tokens["<|image_pad|>"],
        "video_token_id": tokens["<|video_pad|>"],
        "vision_start_token_id": tokens["<|vision_start|>"],
        "vision_end_token_id": tokens["<|vision_end|>"],
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "vocab_size": len(tokenizer),
            "hidden_size": spec.width,
            "intermediate_size": 2 * spec.width,
            "num_hidden_layers": 2,
            "num_attention_heads": spec.width // 32,
            "num_key_value_heads": spec.width // 32,
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "rope_theta": 5000000.0,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [6, 5, 5], "rope_type": "default"},
            # 0.02, right for the published width, leaves a random network of this one almost linear.
            "initializer_range": 0.08,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "depth": spec.vision_layers,
            "hidden_size": spec.vision_width,
            "intermediate_size": 2 * spec.vision_width,
            "num_heads": spec.vision_width // 16,
            "num_position_embeddings": (spec.image // 8) ** 2,
            "out_hidden_size": spec.width,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.08,
        },
    }


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with Qwen's special tokens, trained on a few instructions."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=512, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        model_max_length=4096,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=[token for token in SPECIAL if token not in ("<|endoftext|>", "<|im_end|>")],
        padding_side="left",
    )


def preprocessor_config(spec: TinySpec) -> dict[str, Any]:
    """Content of `preprocessor_config.json`."""
    return {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "patch_size": 8,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 16 * 16, "longest_edge": 4 * spec.image**2},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }


def main(argv: list[str] | None = None) -> None:
    from vla_backend import activate

    default = TinySpec()
    parser = argparse.ArgumentParser(prog="python -m vla_groot.tiny", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write the checkpoint to")
    for name in TinySpec.__dataclass_fields__:
        value = getattr(default, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value, help=f"default: {value}")
    arguments = vars(parser.parse_args(argv))
    out = arguments.pop("out")
    try:
        spec = TinySpec(**arguments)
    except ValueError as error:
        parser.error(str(error))
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    save(out, backend, spec)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    print(f"wrote a random GR00T N1.7 checkpoint of {size / 1e6:.1f} MB to {out}")


if __name__ == "__main__":
    main()
