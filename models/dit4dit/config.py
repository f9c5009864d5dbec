"""The `model:` section of a configuration. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from vla_backend.errors import BackendError

MODES = ("joint", "action", "video")
DTYPES = ("float32", "bfloat16", "float16")
FLOW_MATCHING = "flow_matching"
LOSS_TYPES = {
    "flow_matching": FLOW_MATCHING,
    "latent_flow_matching": FLOW_MATCHING,
    "rectified_flow": FLOW_MATCHING,
    "rf": FLOW_MATCHING,
    "latent_mse": "latent_mse",
    "pixel_mse": "pixel_mse",
    "mse": "pixel_mse",
    "pixel_l1": "pixel_l1",
}
ACTIVATIONS = ("gelu-approximate", "gelu", "geglu", "geglu-approximate", "swiglu", "linear-silu")
# Heads x head size of the named head sizes; "DiT-T" is for tests and demonstrations.
HEAD_SIZES = {"DiT-T": (4, 8), "DiT-B": (12, 64), "DiT-L": (32, 48)}


class ConfigError(BackendError, ValueError):
    """A setting of the `model:` section that cannot work."""


@dataclass
class FlowMatchingConfig:
    """How the time of the future-video flow-matching loss is drawn.

    Attributes:
        time_distribution: "logit_normal" (sigmoid of a standard normal) or "uniform".
        high_sigma_ratio: share of samples moved to high noise; null or 0 for none.
        high_sigma_min: those samples get a time uniform on [high_sigma_min, 1).
    """

    time_distribution: str = "logit_normal"
    high_sigma_ratio: float | None = 0.05
    high_sigma_min: float | None = 0.98


@dataclass
class BackboneConfig:
    """The Cosmos-Predict2.5 video model.

    Attributes:
        path: folder of a diffusers pipeline, or its hub id.
        revision: hub revision; not used for a folder.
        local_files_only: never download; false lets a hub id be fetched.
        dtype: storage dtype of the trained video transformer: "float32", "bfloat16" or "float16".
        frozen_dtype: storage dtype of the text encoder and the VAE; null takes `dtype`.
        time_dtype: times fed to the transformer are rounded to this dtype first.
        extract_layer: the output of this transformer block, counted from 0, is the feature.
        max_sequence_length: prompt tokens; longer prompts are cut, shorter ones padded.
        train_text_encoder: let gradients of the video loss reach the text encoder.
        text_encoder_on_host: leave the frozen text encoder in host memory and move only its embeddings.
        prompt_cache_size: distinct instructions whose embeddings are kept in memory; about 100 MB each at full size.
        prompt_disk_cache: folder that keeps them between runs, shared by all processes; "auto" for
            $XDG_CACHE_HOME/vla-backend/prompts, null for memory alone. Not used with a trained text encoder.
        prompt_disk_cache_gb: size of that folder; the embeddings used longest ago are removed first.
        latent_cache: keep the VAE's latents of training clips in $XDG_CACHE_HOME/vla-backend/latents, 0.4 MB for a
            clip of 5 frames of 224 x 448 pixels; refused when frames are augmented at random.
        latent_cache_gb: size of that folder; the latents used longest ago are removed first.
        conditional_frame_timestep: time value of the observed latent frame.
        future_loss_type: "flow_matching", "latent_mse", "pixel_mse" or "pixel_l1".
        future_num_inference_steps: sampler steps of the losses other than flow matching.
        flow_matching: how its time is drawn.
        latent_mse_unit_range: future frames enter `latent_mse` in [0, 1] instead of [-1, 1], as upstream does.
        pixel_range_by_minimum: decoded frames are taken to be in [0, 1] when no value of the batch is below -0.5,
            as upstream does.
        pixel_last_frames: a clip whose length is not 1 + a multiple of 4 decodes to fewer frames; compare the last of
            them with the future, as upstream does, instead of those of the same time.
    """

    path: str = ""
    revision: str = "diffusers/base/post-trained"
    local_files_only: bool = True
    dtype: str = "float32"
    frozen_dtype: str | None = None
    time_dtype: str = "float32"
    extract_layer: int = 17
    max_sequence_length: int = 512
    train_text_encoder: bool = False
    text_encoder_on_host: bool = False
    prompt_cache_size: int = 32
    prompt_disk_cache: str | None = "auto"
    prompt_disk_cache_gb: float = 20.0
    latent_cache: bool = False
    latent_cache_gb: float = 100.0
    conditional_frame_timestep: float = 0.0001
    future_loss_type: str = FLOW_MATCHING
    future_num_inference_steps: int = 1
    flow_matching: FlowMatchingConfig = field(default_factory=FlowMatchingConfig)
    latent_mse_unit_range: bool = False
    pixel_range_by_minimum: bool = False
    pixel_last_frames: bool = False

    @property
    def loss_type(self) -> str:
        """`future_loss_type` without its aliases."""
        return LOSS_TYPES[self.future_loss_type]


@dataclass
class ActionHeadConfig:
    """The action diffusion transformer.

    Attributes:
        size: "DiT-B" (12 heads x 64), "DiT-L" (32 x 48) or "DiT-T" (4 x 8).
        num_attention_heads, attention_head_dim: override `size`.
        num_layers: blocks.
        cross_attention_dim: width of the video features; null takes the transformer's.
        output_dim: width of the transformer's output.
        hidden_size: inner width of the state encoder and the action decoder.
        action_dim: D, width of the padded action vector.
        state_dim: S, width of the padded state vector; null for a head without state.
        action_horizon: H, predicted steps.
        add_pos_embed: add a learned position to the action tokens.
        max_seq_len: size of that table.
        dropout: dropout probability in attention and feed-forward.
        final_dropout: a second dropout after each of them.
        interleave_self_attention: every second block attends to the action tokens instead of the features.
        norm_type: "ada_norm" (conditioned on time) or "layer_norm".
        positional_embeddings: null, or "sinusoidal" inside every block.
        max_num_positional_embeddings: size of that table.
        attention_bias: bias of the query, key and value projections.
        activation_fn: "gelu-approximate", "gelu", "geglu", "geglu-approximate", "swiglu" or "linear-silu".
        norm_elementwise_affine, norm_eps: of the norms that are not conditioned on time.
        noise_beta_alpha, noise_beta_beta, noise_s: training time t = Beta(alpha, beta) / s; t may exceed 1 slightly.
        num_timestep_buckets: resolution of the time embedding.
        num_inference_timesteps: Euler steps of sampling.
    """

    size: str = "DiT-B"
    num_attention_heads: int | None = None
    attention_head_dim: int | None = None
    num_layers: int = 16
    cross_attention_dim: int | None = None
    output_dim: int = 2560
    hidden_size: int = 2560
    action_dim: int = 8
    state_dim: int | None = 16
    action_horizon: int = 8
    add_pos_embed: bool = True
    max_seq_len: int = 1024
    dropout: float = 0.2
    final_dropout: bool = True
    interleave_self_attention: bool = True
    norm_type: str = "ada_norm"
    positional_embeddings: str | None = None
    max_num_positional_embeddings: int = 512
    attention_bias: bool = True
    activation_fn: str = "gelu-approximate"
    norm_elementwise_affine: bool = False
    norm_eps: float = 1e-5
    noise_beta_alpha: float = 1.5
    noise_beta_beta: float = 1.0
    noise_s: float = 0.999
    num_timestep_buckets: int = 1000
    num_inference_timesteps: int = 4

    @property
    def heads(self) -> int:
        return self.num_attention_heads or HEAD_SIZES[self.size][0]

    @property
    def head_dim(self) -> int:
        return self.attention_head_dim or HEAD_SIZES[self.size][1]


@dataclass
class DiT4DiTConfig:
    """DiT4DiT: a video diffusion transformer whose features drive an action diffusion transformer.

    Attributes:
        name: "dit4dit".
        mode: "joint" trains video model and action head, "action" the head on a frozen video model, "video" the video
            model alone.
        repeated_diffusion_steps: copies of each sample in the action loss, each with its own noise and time.
        resize_on_device: take camera frames as decoded, one byte per colour, and resize them on the device: a
            quarter of the bytes or less to move, and no resizing in the workers. Frames of a view must have one size.
        gradient_checkpointing: recompute the video transformer's blocks in the backward pass to save memory.
        backbone: the video model.
        action_head: the action head; not built in mode "video".
    """

    name: str = "dit4dit"
    mode: str = "joint"
    repeated_diffusion_steps: int = 4
    resize_on_device: bool = False
    gradient_checkpointing: bool = False
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    action_head: ActionHeadConfig = field(default_factory=ActionHeadConfig)

    def problems(self) -> list[tuple[str, str, str]]:
        """What is wrong with the values alone, as (key, message, remedy); loads nothing."""
        backbone, head = self.backbone, self.action_head
        found: list[tuple[str, str, str]] = []

        def choice(key: str, value: object, allowed: Iterable[object]) -> None:
            if value not in allowed:
                names = ", ".join("null" if item is None else str(item) for item in allowed)
                found.append((f"model.{key}", f"is {value!r}", f"use one of: {names}"))

        choice("mode", self.mode, MODES)
        choice("backbone.future_loss_type", backbone.future_loss_type, LOSS_TYPES)
        choice(
            "backbone.flow_matching.time_distribution",
            backbone.flow_matching.time_distribution,
            ("logit_normal", "uniform"),
        )
        for key in ("dtype", "time_dtype"):
            choice(f"backbone.{key}", getattr(backbone, key), DTYPES)
        choice("backbone.frozen_dtype", backbone.frozen_dtype, (None, *DTYPES))
        choice("action_head.size", head.size, HEAD_SIZES)
        choice("action_head.norm_type", head.norm_type, ("ada_norm", "layer_norm"))
        choice("action_head.positional_embeddings", head.positional_embeddings, (None, "sinusoidal"))
        choice("action_head.activation_fn", head.activation_fn, ACTIVATIONS)
        if not backbone.path:
            found.append(
                (
                    "model.backbone.path",
                    "is empty",
                    "set it to the folder of a Cosmos-Predict2.5 pipeline in diffusers format, or to its hub id",
                )
            )
        for key, value in (
            ("repeated_diffusion_steps", self.repeated_diffusion_steps),
            ("backbone.max_sequence_length", backbone.max_sequence_length),
            ("backbone.future_num_inference_steps", backbone.future_num_inference_steps),
            ("action_head.action_dim", head.action_dim),
            ("action_head.action_horizon", head.action_horizon),
            ("action_head.num_layers", head.num_layers),
            ("action_head.num_inference_timesteps", head.num_inference_timesteps),
            ("action_head.num_timestep_buckets", head.num_timestep_buckets),
        ):
            if value < 1:
                found.append((f"model.{key}", f"is {value}", "use a whole number of at least 1"))
        if backbone.latent_cache and backbone.latent_cache_gb <= 0:
            found.append(("model.backbone.latent_cache_gb", f"is {backbone.latent_cache_gb}", "give it a size"))
        flow = backbone.flow_matching
        if flow.high_sigma_ratio and flow.high_sigma_min is None:
            found.append(
                (
                    "model.backbone.flow_matching.high_sigma_min",
                    f"is null but high_sigma_ratio is {flow.high_sigma_ratio}",
                    "give the smallest time of the high-noise samples, e.g. 0.98, or set high_sigma_ratio to null",
                )
            )
        if backbone.train_text_encoder and backbone.text_encoder_on_host:
            found.append(
                (
                    "model.backbone.text_encoder_on_host",
                    "is true for a trained text encoder",
                    "set one of them to false",
                )
            )
        if backbone.extract_layer < 0:
            found.append(("model.backbone.extract_layer", f"is {backbone.extract_layer}", "count blocks from 0"))
        if head.add_pos_embed and head.action_horizon > head.max_seq_len:
            found.append(
                (
                    "model.action_head.action_horizon",
                    f"is {head.action_horizon} but the position table has max_seq_len = {head.max_seq_len} entries",
                    "raise max_seq_len",
                )
            )
        return found

    def validate(self) -> None:
        """Raise `ConfigError` naming every problem with its remedy."""
        found = self.problems()
        if found:
            raise ConfigError("\n".join(f"{key} {message}; {remedy}" for key, message, remedy in found))
