"""A small random pipeline in the format of Cosmos-Predict2.5, for demonstrations and tests without a download.

    python -m vla_dit4dit.tiny runs/tiny_cosmos --width 128 --layers 3

Real classes and the real scheduler settings, only small: what is written loads with
`Cosmos2_5_PredictBasePipeline.from_pretrained` like the published model. Weights are random, arranged so that they are
of use without pre-training:

* The VAE has no residual blocks but those in its middle, and they start at zero: untrained they only cost time and
  detail. Its last encoder layer whitens the latents of random images, which gives them unit variance and no
  correlation - what a trained VAE delivers through `latents_mean` and `latents_std`.
* The transformer has the class's learned position embedding (`extra_pos_embed_type`), which the published model does
  without: a pre-trained transformer knows where a token is from its rotary attention alone, a random one would hand
  the action head a bag of tokens. Its feed-forward layers start larger than usual: they are then random features of
  content and position together, from which a linear layer reads where something is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
from diffusers.models.transformers.transformer_cosmos import CosmosTransformer3DModel
from diffusers.pipelines.cosmos.pipeline_cosmos2_5_predict import Cosmos2_5_PredictBasePipeline
from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (  # type: ignore[attr-defined]  # transformers 5 adds the last name as it runs
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2TokenizerFast,
)

SYSTEM_PROMPT = "You are a helpful assistant who will provide prompts to an image generator."
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Words of robot instructions; the tokenizer falls back to bytes for everything else.
CORPUS = [
    f"system\n{SYSTEM_PROMPT}\n",
    "user\nassistant\n",
    "pick up the red block and place it on the plate, open the drawer, close the door, push the button from the top, "
    "press the lever, put the bottle into the basket, stack the cube, move the gripper to the left, right, front, back",
]
# Wan 2.1's latents.
LATENT_CHANNELS = 16


@dataclass(frozen=True)
class TinySpec:
    """Sizes of the pipeline.

    Attributes:
        width: of the video transformer; a multiple of `heads`, with an even width per head of at least 6.
        heads, layers: of the video transformer.
        vae_width: channels of the VAE at every resolution.
        text_width, text_layers: of the text encoder.
        seed: of all weights.
    """

    width: int = 128
    heads: int = 4
    layers: int = 3
    vae_width: int = 16
    text_width: int = 32
    text_layers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width % self.heads or (self.width // self.heads) % 2 or self.width // self.heads < 6:
            raise ValueError(
                f"width {self.width} does not give {self.heads} heads of an even size of at least 6; "
                f"use a multiple of {2 * self.heads}, at least {6 * self.heads}"
            )
        if self.text_width % 32:
            raise ValueError(f"text_width must be a multiple of 32, not {self.text_width}")


def build(spec: TinySpec = TinySpec()) -> Cosmos2_5_PredictBasePipeline:
    """The pipeline in float32 on the CPU; leaves torch's random state as it was."""
    tokenizer = build_tokenizer()

    def seeded(build_part: Callable[..., Any], *arguments: Any) -> Any:
        # Each part by itself, so that one does not change with the size of another.
        torch.manual_seed(spec.seed)
        return build_part(spec, *arguments)

    with torch.random.fork_rng(devices=[]):
        return Cosmos2_5_PredictBasePipeline(
            text_encoder=seeded(build_text_encoder, tokenizer),
            tokenizer=tokenizer,
            transformer=seeded(build_transformer),
            vae=seeded(build_vae),
            # diffusers imports this class in a way that shows type checkers a placeholder.
            scheduler=build_scheduler(),  # type: ignore[arg-type]
            safety_checker=_NoSafetyChecker(),
        )


def save(out: Path, spec: TinySpec = TinySpec()) -> None:
    """Builds the pipeline and writes it to the folder `out`, without a safety checker."""
    pipeline = build(spec)
    pipeline.register_modules(safety_checker=None)
    pipeline.save_pretrained(out)


class _NoSafetyChecker:
    """The pipeline insists on one at construction and would load a guard model of many GB otherwise."""


def build_transformer(spec: TinySpec) -> CosmosTransformer3DModel:
    """The video diffusion transformer: 16 latent channels and the condition mask in, velocity out."""
    transformer = CosmosTransformer3DModel(
        in_channels=LATENT_CHANNELS + 1,
        out_channels=LATENT_CHANNELS,
        num_attention_heads=spec.heads,
        attention_head_dim=spec.width // spec.heads,
        num_layers=spec.layers,
        mlp_ratio=4.0,
        text_embed_dim=spec.text_width,
        adaln_lora_dim=max(8, spec.width // 8),
        max_size=(32, 128, 128),
        patch_size=(1, 2, 2),
        rope_scale=(1.0, 3.0, 3.0),
        concat_padding_mask=True,
        extra_pos_embed_type="learnable",
        use_crossattn_projection=True,
        crossattn_proj_in_channels=spec.text_layers * spec.text_width,
        encoder_hidden_states_channels=spec.text_width,
    )
    for parameter in transformer.learnable_pos_embed.parameters():
        nn.init.normal_(parameter)
    # As strong as the position embedding, which is added in every block.
    transformer.patch_embed.proj.weight.data.mul_(3.0)
    for block in transformer.transformer_blocks:
        gains = ((block.ff.net[0].proj, 2.0), (block.ff.net[2], 1.0), (block.norm3.linear_2, 1.5))
        for layer, gain in gains:
            nn.init.normal_(layer.weight, std=gain / layer.in_features**0.5)
    return transformer


def build_scheduler() -> UniPCMultistepScheduler:
    """The settings of Cosmos-Predict2.5."""
    return UniPCMultistepScheduler(
        use_karras_sigmas=True,
        use_flow_sigmas=True,
        prediction_type="flow_prediction",
        sigma_max=200.0,
        sigma_min=0.01,
        solver_order=2,
        solver_type="bh2",
    )


def build_vae(spec: TinySpec) -> AutoencoderKLWan:
    """Wan 2.1's causal video VAE: 4x temporal and 8x8 spatial compression to 16 channels."""
    vae = AutoencoderKLWan(
        base_dim=spec.vae_width,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=0,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * LATENT_CHANNELS,
        latents_std=[1.0] * LATENT_CHANNELS,
    ).eval()
    for name, module in vae.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d)):
            nn.init.zeros_(module.weight) if name.endswith("conv2") else nn.init.orthogonal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    _whiten(vae)
    return vae


@torch.no_grad()
def _whiten(vae: AutoencoderKLWan) -> None:
    """Sets the encoder's last layer so that latents of random images have mean 0 and covariance 1."""
    latents = vae.encode(_random_images(64)).latent_dist.mean
    latents = latents.transpose(0, 1).flatten(1).double()  # (16, N)
    mean, covariance = latents.mean(1), torch.cov(latents)
    values, vectors = torch.linalg.eigh(covariance)
    # Directions that hardly vary would be amplified to noise; 1e-4 of the largest variance is the floor.
    scale = values.clamp(min=float(values.max()) * 1e-4).rsqrt()
    whitening = (vectors * scale) @ vectors.T
    layer = vae.quant_conv  # 1x1x1: rows 0..15 give the mean, 16..31 the log-variance of the posterior
    assert layer.bias is not None
    weight, bias = layer.weight.double()[:LATENT_CHANNELS, :, 0, 0, 0], layer.bias.double()[:LATENT_CHANNELS]
    layer.weight.zero_()
    layer.weight[:LATENT_CHANNELS, :, 0, 0, 0] = (whitening @ weight).float()
    layer.bias[:LATENT_CHANNELS] = (whitening @ (bias - mean)).float()
    layer.bias[LATENT_CHANNELS:] = -12.0  # a nearly deterministic posterior, as a trained VAE's


def _random_images(count: int, size: int = 96) -> torch.Tensor:
    """Smooth random colour fields with edges, (count, 3, 1, size, size) in [-1, 1]."""
    image = torch.zeros(count, 3, size, size)
    for cells in (2, 4, 12, 48):
        field = torch.randn(count, 3, cells, cells)
        image += nn.functional.interpolate(field, size=(size, size), mode="nearest" if cells == 12 else "bilinear")
    return image.div(2.0).tanh()[:, :, None]


def build_tokenizer() -> Qwen2TokenizerFast:
    """A byte-level BPE tokenizer with Qwen's special tokens, trained on a few instructions."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet)
    )
    trained = json.loads(bpe.to_str())["model"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "vocab.json").write_text(json.dumps(trained["vocab"]))
        (root / "merges.txt").write_text("#version: 0.2\n" + "\n".join(_merge(m) for m in trained["merges"]) + "\n")
        tokenizer_config = {
            "tokenizer_class": "Qwen2Tokenizer",
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "additional_special_tokens": ["<|im_start|>"],
            "padding_side": "right",
        }
        (root / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
        tokenizer = Qwen2TokenizerFast.from_pretrained(folder, local_files_only=True)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _merge(pair: Any) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


def build_text_encoder(spec: TinySpec, tokenizer: Qwen2TokenizerFast) -> Qwen2_5_VLForConditionalGeneration:
    """A Qwen2.5-VL model; its vision tower is never used here and as small as it can be."""
    special = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "bos_token_id": None,
            "eos_token_id": special,
            "pad_token_id": tokenizer.pad_token_id,
            "hidden_size": spec.text_width,
            "intermediate_size": 2 * spec.text_width,
            "num_hidden_layers": spec.text_layers,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 4096,
            "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": _mrope_section(spec.text_width // 4)},
            "initializer_range": 0.1,  # 0.02 leaves a random network of this width almost linear
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": spec.text_width,
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


def _mrope_section(pairs: int) -> list[int]:
    """Rotary frequency pairs for time, height and width, in Qwen2.5-VL's proportions 2 : 3 : 3."""
    return [pairs // 4, 3 * pairs // 8, pairs - pairs // 4 - 3 * pairs // 8]


def main(argv: list[str] | None = None) -> None:
    default = TinySpec()
    parser = argparse.ArgumentParser(prog="python -m vla_dit4dit.tiny", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write the pipeline to")
    for name in TinySpec.__dataclass_fields__:
        value = getattr(default, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value, help=f"default: {value}")
    arguments = vars(parser.parse_args(argv))
    out = arguments.pop("out")
    try:
        save(out, TinySpec(**arguments))
    except ValueError as exc:
        parser.error(str(exc))
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"wrote a random Cosmos-Predict2.5 pipeline of {size / 1e6:.1f} MB to {out}")


if __name__ == "__main__":
    main()
