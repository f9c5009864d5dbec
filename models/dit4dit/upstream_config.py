"""Upstream's configuration files and ours: the one table that translates between them, both ways.

Imports no torch.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vla_dit4dit.config import DTYPES, LOSS_TYPES, ConfigError

SECTIONS = (
    "run_id", "run_root_dir", "seed", "trackers", "wandb_entity", "wandb_project", "is_debug",
    "framework", "datasets", "trainer",
)  # fmt: skip
_UNSET = object()


@dataclass(frozen=True)
class Row:
    """One setting under both names.

    Attributes:
        upstream, native: dotted keys.
        default: what upstream takes when its file does not name the key; unset leaves our default.
        read, write: convert upstream's value to ours and back.
    """

    upstream: str
    native: str
    default: Any = _UNSET
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


def _items(value: Any) -> list[str]:
    """A comma-separated string as a list."""
    parts = value.split(",") if isinstance(value, str) else (value or [])
    return [part.strip() for part in parts if part.strip()]


def _loss_type(value: Any) -> str:
    name = str(value).lower()
    if name not in LOSS_TYPES:
        warnings.warn(f"future_loss_type {value!r} is not known; like upstream, this run uses pixel_l1", stacklevel=2)
        return "pixel_l1"
    return name


def _dtype(value: Any) -> str:
    name = str(value).lower()
    if name not in DTYPES:
        warnings.warn(f"torch_dtype {value!r} is not known; like upstream, this run uses bfloat16", stacklevel=2)
        return "bfloat16"
    return name


def _decoder(value: Any) -> str:
    if value in ("decord", "torchcodec", "pyav"):
        return str(value)
    warnings.warn(f"video_backend {value!r} does not exist here; the backend chooses the decoder", stacklevel=2)
    return "auto"


def _rows(upstream: str, native: str, names: str) -> list[Row]:
    """Settings that have the same last name on both sides."""
    return [Row(f"{upstream}.{name}", f"{native}.{name}") for name in names.split()]


_COSMOS, _HEAD, _DATA, _TRAIN = "framework.cosmos25", "framework.action_model", "datasets.vla_data", "trainer"
TABLE: tuple[Row, ...] = (
    Row("run_id", "run.id"),
    Row("run_root_dir", "run.root"),
    Row("seed", "run.seed"),
    Row("wandb_project", "run.wandb_project"),
    Row("wandb_entity", "run.wandb_entity"),
    Row("framework.name", "model.name", read=lambda _: "dit4dit", write=lambda _: "DiT4DiT"),
    Row(f"{_COSMOS}.base_model", "model.backbone.path", default=""),
    Row(f"{_COSMOS}.training", "model.mode", read=lambda value: str(value).lower()),
    Row(f"{_COSMOS}.extract_layer", "model.backbone.extract_layer", default=19),
    Row(f"{_COSMOS}.future_loss_type", "model.backbone.future_loss_type", default="pixel_l1", read=_loss_type),
    Row(f"{_COSMOS}.future_num_inference_steps", "model.backbone.future_num_inference_steps", default=2),
    Row(f"{_COSMOS}.conditional_frame_timestep", "model.backbone.conditional_frame_timestep", default=0.001),
    *_rows(_COSMOS, "model.backbone", "revision local_files_only max_sequence_length"),
    Row(
        f"{_COSMOS}.flow_matching.time_distribution",
        "model.backbone.flow_matching.time_distribution",
        # Every other name means uniform upstream.
        read=lambda value: "logit_normal" if value == "logit_normal" else "uniform",
    ),
    *_rows(f"{_COSMOS}.flow_matching", "model.backbone.flow_matching", "high_sigma_ratio high_sigma_min"),
    Row(f"{_HEAD}.action_model_type", "model.action_head.size"),
    *_rows(
        _HEAD,
        "model.action_head",
        "hidden_size add_pos_embed max_seq_len action_dim state_dim action_horizon noise_beta_alpha noise_beta_beta "
        "noise_s num_timestep_buckets num_inference_timesteps",
    ),
    *_rows(
        f"{_HEAD}.diffusion_model_cfg",
        "model.action_head",
        "cross_attention_dim dropout final_dropout interleave_self_attention num_layers output_dim attention_bias "
        "activation_fn norm_elementwise_affine norm_eps max_num_positional_embeddings num_attention_heads "
        "attention_head_dim",
    ),
    # Of these two, every other name means the second choice upstream.
    Row(
        f"{_HEAD}.diffusion_model_cfg.norm_type",
        "model.action_head.norm_type",
        read=lambda value: "ada_norm" if value == "ada_norm" else "layer_norm",
    ),
    Row(
        f"{_HEAD}.diffusion_model_cfg.positional_embeddings",
        "model.action_head.positional_embeddings",
        read=lambda value: "sinusoidal" if value == "sinusoidal" else None,
    ),
    Row(f"{_TRAIN}.repeated_diffusion_steps", "model.repeated_diffusion_steps", default=4),
    Row(f"{_DATA}.data_root_dir", "data.root"),
    Row(f"{_DATA}.data_mix", "data.mixture"),
    Row(f"{_DATA}.per_device_batch_size", "data.batch_size"),
    *_rows(_DATA, "data", "video_delta_indices action_video_freq_ratio max_state_dim max_action_dim"),
    Row(
        f"{_DATA}.video_backend", "data.decoder", read=_decoder, write=lambda name: "decord" if name == "auto" else name
    ),
    Row(f"{_TRAIN}.max_train_steps", "train.max_steps"),
    Row(f"{_TRAIN}.num_warmup_steps", "train.warmup_steps"),
    Row(f"{_TRAIN}.logging_frequency", "train.log_interval"),
    Row(f"{_TRAIN}.lr_scheduler_type", "train.scheduler.name"),
    Row(f"{_TRAIN}.scheduler_specific_kwargs.min_lr", "train.scheduler.min_lr"),
    Row(f"{_TRAIN}.freeze_modules", "train.freeze", read=_items, write=",".join),
    Row(f"{_TRAIN}.reload_modules", "train.reload_modules", read=_items, write=",".join),
    Row(f"{_TRAIN}.loss_scale.future_video", "train.loss_weights.future_video_loss"),
    Row(
        f"{_TRAIN}.is_resume",
        "train.resume",
        read=lambda value: "auto" if value else "never",
        write=lambda value: value != "never",
    ),
    *_rows(
        _TRAIN,
        "train",
        "save_interval eval_interval gradient_clipping gradient_accumulation_steps pretrained_checkpoint",
    ),
    *_rows(f"{_TRAIN}.optimizer", "train.optimizer", "name betas eps weight_decay"),
)
# Subtrees copied as they are: their keys are module paths, or arguments of the schedule beside those of the table.
SUBTREES = {
    f"{_TRAIN}.learning_rate": "train.learning_rate",
    f"{_TRAIN}.scheduler_specific_kwargs": "train.scheduler.arguments",
}

# Accepted, but upstream does nothing with them either (or the backend decides instead).
INEFFECTIVE: Mapping[str, str] = {
    "trackers": "not read by upstream; choose run.loggers",
    "is_debug": "not read by upstream",
    f"{_COSMOS}.attn_implementation": "not read by upstream; the backend chooses",
    f"{_COSMOS}.vl_hidden_dim": "upstream only needs it to be set",
    f"{_COSMOS}.trainable": "stored by upstream, never used",
    f"{_COSMOS}.device": "the backend decides",
    f"{_HEAD}.past_action_window_size": "enters an unused length",
    f"{_HEAD}.repeated_diffusion_steps": "upstream reads trainer.repeated_diffusion_steps",
    f"{_HEAD}.num_target_vision_tokens": "not read by upstream",
    f"{_HEAD}.diffusion_model_cfg.num_embeds_ada_norm": "stored by upstream, never used",
    f"{_HEAD}.diffusion_model_cfg.compute_dtype": "stored by upstream, never used",
    f"{_HEAD}.diffusion_model_cfg.upcast_attention": "without effect in upstream's attention",
    f"{_DATA}.include_state": "not read by upstream",
    f"{_DATA}.action_type": "not read by upstream",
    f"{_DATA}.default_image_resolution": "not read by upstream",
    f"{_DATA}.load_all_data_for_training": "not read by upstream",
    f"{_DATA}.obs": "not read by upstream",
    f"{_DATA}.image_size": "upstream resizes every view to 224 x 224 whatever it says",
    **{
        f"{_TRAIN}.{name}": "not read by upstream"
        for name in (
            "epochs",
            "max_grad_norm",
            "warmup_ratio",
            "weight_decay",
            "resume_epoch",
            "resume_step",
            "enable_gradient_checkpointing",
            "enable_mixed_precision_training",
        )
    },
    f"{_TRAIN}.framework": "misplaced prefix in upstream's launch scripts; never had an effect",
}
# Keys handled by `_special`.
SPECIAL = (
    f"{_COSMOS}.model_id_or_path", f"{_COSMOS}.torch_dtype", f"{_HEAD}.future_action_window_size",
    f"{_DATA}.dataset_py", f"{_DATA}.delete_pause_frame", f"{_DATA}.lerobot_version",
)  # fmt: skip

# What upstream always does; each is a named switch here (docs/quirks.md).
UPSTREAM_BEHAVIOUR: Mapping[str, Any] = {
    "model.backbone.latent_mse_unit_range": True,
    "model.backbone.pixel_range_by_minimum": True,
    "model.backbone.pixel_last_frames": True,
    "data.image_size": [224, 224],
    "data.extra_views": "as_frames",
    "data.mask_padded_actions": False,
    "data.reshuffle_each_epoch": False,
    "train.scheduler.floor": "base",
}


def translate(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Upstream's configuration as ours, or None if `raw` is not in upstream's layout.

    Sections in our own layout beside upstream's (say `parallel`) are kept and win.

    Raises:
        ConfigError: an unknown key, with the nearest known one, or a value that this model cannot honour.
    """
    name = (raw.get("framework") or {}).get("name") if isinstance(raw.get("framework"), Mapping) else None
    if name != "DiT4DiT":
        return None
    given = dict(_flatten({key: value for key, value in raw.items() if key in SECTIONS}))
    names = [*(row.upstream for row in TABLE), *SUBTREES]
    # A section that is null says nothing.
    sections = {key for key in given if any(name.startswith(f"{key}.") for name in names) or key in SUBTREES}
    given = {key: value for key, value in given.items() if value is not None or key not in sections}
    native: dict[str, Any] = {}
    known = {row.upstream: row for row in TABLE}
    for key, value in given.items():
        if key in known:
            put(native, known[key].native, known[key].read(value))
        elif subtree := _within(key, SUBTREES):
            section = lookup(native, SUBTREES[subtree])
            if section is _UNSET:
                section = {}
                put(native, SUBTREES[subtree], section)
            section[key[len(subtree) + 1 :]] = float(value) if subtree.endswith("learning_rate") else value
        elif key not in SPECIAL and not _within(key, INEFFECTIVE):
            near = difflib.get_close_matches(key, [*known, *SUBTREES, *SPECIAL, *INEFFECTIVE], n=1)
            raise ConfigError(f"unknown key {key}" + (f"; did you mean {near[0]}?" if near else ""))
    for row in TABLE:
        if row.upstream not in given and row.default is not _UNSET:
            put(native, row.native, row.default)
    for key, value in UPSTREAM_BEHAVIOUR.items():
        put(native, key, value)
    _special(given, native)
    return _merge(native, {key: value for key, value in raw.items() if key not in SECTIONS})


def _special(given: Mapping[str, Any], native: dict[str, Any]) -> None:
    if given.get(f"{_COSMOS}.model_id_or_path"):
        put(native, "model.backbone.path", given[f"{_COSMOS}.model_id_or_path"])
    dtype = _dtype(given.get(f"{_COSMOS}.torch_dtype", "bfloat16"))
    # The trained transformer is stored in float32 and computes in the mixed precision, which is what the optimizer's
    # master weights amount to upstream.
    put(native, "model.backbone.dtype", "float32")
    put(native, "model.backbone.frozen_dtype", dtype)
    put(native, "model.backbone.time_dtype", dtype)
    put(native, "parallel.mixed_precision", "fp32" if dtype == "float32" else "bf16")

    window, horizon = given.get(f"{_HEAD}.future_action_window_size"), given.get(f"{_HEAD}.action_horizon")
    if window is not None:
        if horizon is not None and int(window) + 1 != int(horizon):
            raise ConfigError(
                f"{_HEAD}.future_action_window_size is {window} and action_horizon is {horizon}; "
                "the window plus one must equal the horizon"
            )
        put(native, "model.action_head.action_horizon", int(window) + 1)
    for key, allowed in (
        (f"{_DATA}.dataset_py", ("lerobot_datasets",)),
        (f"{_DATA}.delete_pause_frame", (False, None)),
        (f"{_DATA}.lerobot_version", ("v2.0", "v2.1", "v3.0", None)),  # the data set itself says which it is
    ):
        if key in given and given[key] not in allowed:
            raise ConfigError(f"{key} is {given[key]!r}; only {allowed[0]!r} is supported")


def to_upstream(native: Mapping[str, Any]) -> dict[str, Any]:
    """Our configuration under upstream's names, complete for upstream's loader."""
    upstream: dict[str, Any] = {}
    for row in TABLE:
        value = lookup(native, row.native)
        if value is not _UNSET and (value is not None or row.upstream.startswith("framework")):
            put(upstream, row.upstream, row.write(value))
    for name, native_name in SUBTREES.items():
        if (value := lookup(native, native_name)) is not _UNSET:
            given = lookup(upstream, name)
            put(upstream, name, {**({} if given is _UNSET else given), **value})
    cosmos, head = upstream["framework"]["cosmos25"], upstream["framework"]["action_model"]
    # Heads named by size there; an override of null would break upstream's arithmetic.
    for key in ("num_attention_heads", "attention_head_dim"):
        if head["diffusion_model_cfg"].get(key) is None:
            head["diffusion_model_cfg"].pop(key, None)
    backbone = native["model"]["backbone"]
    cosmos["torch_dtype"] = backbone.get("frozen_dtype") or backbone.get("dtype", "float32")
    cosmos["vl_hidden_dim"] = head["diffusion_model_cfg"]["cross_attention_dim"]
    head["future_action_window_size"] = head["action_horizon"] - 1
    head["past_action_window_size"] = 0
    put(upstream, f"{_DATA}.image_size", list(lookup(native, "data.image_size")))
    put(upstream, f"{_DATA}.dataset_py", "lerobot_datasets")
    return upstream


def put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a dotted key in a nested dictionary."""
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[last] = value


def lookup(tree: Mapping[str, Any], dotted: str) -> Any:
    """The value of a dotted key, or a private marker if it is absent."""
    value: Any = tree
    for part in dotted.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _UNSET
        value = value[part]
    return value


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{name}.")
        elif not isinstance(value, Mapping):
            yield name, value


def _within(key: str, roots: Mapping[str, Any]) -> str | None:
    return next((root for root in roots if key == root or key.startswith(f"{root}.")), None)


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value
    return base
