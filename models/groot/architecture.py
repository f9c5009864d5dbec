"""The keys of a GR00T N1.7 `config.json`, with the defaults that apply to keys a file leaves out. Imports no torch."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vla_groot.errors import CheckpointError, ConfigError

MODEL_TYPE = "Gr00tN1d7"


def _default_dit() -> dict[str, Any]:
    return {
        "positional_embeddings": None,
        "num_layers": 16,
        "num_attention_heads": 32,
        "attention_head_dim": 48,
        "norm_type": "ada_norm",
        "dropout": 0.2,
        "final_dropout": True,
        "output_dim": 1024,
        "interleave_self_attention": True,
    }


@dataclass
class Architecture:
    """Everything in `config.json`; the names are those of the file.

    Attributes:
        model_name: folder or hub id of the Qwen3-VL backbone's configuration and tokenizer.
        model_revision: its hub revision.
        backbone_embedding_dim: F, width of the features; the text width of the backbone.
        select_layer: number of language layers kept.
        tune_llm, tune_visual: train the language model, the vision tower.
        tune_top_llm_layers: train this many of the last language layers.
        load_bf16, backbone_trainable_params_fp32: store the backbone in bfloat16, its trained weights in float32.
        use_flash_attention: let the backend choose the backbone's attention implementation; false takes SDPA.
        max_state_dim, max_action_dim: padded widths of state and action.
        action_horizon: H, predicted steps, shorter chunks being padded.
        state_history_length: states fed to the state encoder together.
        hidden_size: inner width of state encoder and action decoder; output width of the DiT.
        input_embedding_dim: D, token width of the DiT.
        add_pos_embed, max_seq_len: learned positions of the action tokens, and how many there are.
        use_vlln: layer norm on the features.
        vl_self_attention_cfg: self-attention stack on the features; null or zero layers for none.
        use_alternate_vl_dit, attend_text_every_n_blocks: cross-attention blocks see text and image tokens in turn.
        diffusion_model_cfg: shape of the DiT.
        num_inference_timesteps: Euler steps.
        noise_beta_alpha, noise_beta_beta, noise_s: training time t = (1 - Beta(alpha, beta)) * s.
        num_timestep_buckets: resolution of the time embedding.
        tune_projector, tune_diffusion_model, tune_vlln: train encoders and decoder, the DiT, the feature layers.
        state_dropout_prob: chance that a training sample's state is dropped.
        max_num_embodiments: slots of the embodiment-specific layers.
        mask_feature_padding: hide padding from the self-attention on the features and from the plain DiT. Published
            checkpoints were trained without, so their results depend on the other samples of a batch.
        strict_action_padding_mask: hide padded action steps from the DiT's self-attention and keep padded action
            dimensions at zero. Published checkpoints were trained without.

    The remaining keys describe image and action processing; `processor_config.json` decides about those.
    """

    model_dtype: str = "bfloat16"
    model_name: str = "nvidia/Cosmos-Reason2-2B"
    backbone_model_type: str = "qwen"
    model_revision: str | None = None
    tune_top_llm_layers: int = 0
    backbone_embedding_dim: int = 2048
    tune_llm: bool = False
    tune_visual: bool = False
    select_layer: int = 12
    reproject_vision: bool = False
    use_flash_attention: bool = True
    load_bf16: bool = False
    backbone_trainable_params_fp32: bool = True
    image_crop_size: Any = (230, 230)
    image_target_size: Any = (256, 256)
    shortest_image_edge: int | None = None
    crop_fraction: float | None = None
    random_rotation_angle: int | None = None
    color_jitter_params: dict[str, float] | None = None
    use_albumentations_transforms: bool = True
    letter_box_transform: bool = False
    extra_augmentation_config: Any = None
    formalize_language: bool = True
    apply_sincos_state_encoding: bool = False
    use_percentiles: bool = True
    use_relative_action: bool = False
    max_state_dim: int = 132
    max_action_dim: int = 132
    action_horizon: int = 40
    hidden_size: int = 1024
    input_embedding_dim: int = 1536
    state_history_length: int = 1
    add_pos_embed: bool = True
    attn_dropout: float = 0.2
    use_vlln: bool = True
    max_seq_len: int = 1024
    use_alternate_vl_dit: bool = True
    attend_text_every_n_blocks: int = 2
    diffusion_model_cfg: dict[str, Any] = field(default_factory=_default_dit)
    vl_self_attention_cfg: dict[str, Any] | None = None
    num_inference_timesteps: int = 4
    noise_beta_alpha: float = 1.5
    noise_beta_beta: float = 1.0
    noise_s: float = 0.999
    num_timestep_buckets: int = 1000
    tune_projector: bool = True
    tune_diffusion_model: bool = True
    tune_vlln: bool = True
    state_dropout_prob: float = 0.8
    exclude_state: bool = False
    use_mean_std: bool = False
    max_num_embodiments: int = 32
    mask_feature_padding: bool = False
    strict_action_padding_mask: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Architecture:
        """From the content of a `config.json`: keys it lacks take the defaults, unknown ones are kept in `extra`."""
        known = {entry.name for entry in fields(cls)} - {"extra"}
        values = {key: copy.deepcopy(value) for key, value in raw.items() if key in known}
        return cls(**values, extra={key: copy.deepcopy(value) for key, value in raw.items() if key not in known})

    @classmethod
    def read(cls, folder: Path) -> Architecture:
        """From `folder/config.json`.

        Raises:
            CheckpointError: the file is missing or of another model.
        """
        path = folder / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{folder} is not a GR00T checkpoint.",
                why=f"config.json: {error}",
                fix="give the folder (or hub id) that holds config.json and model.safetensors",
            ) from error
        if raw.get("model_type") != MODEL_TYPE:
            raise CheckpointError(
                f"{folder} holds another model than GR00T N1.7.",
                why=f"config.json says model_type {raw.get('model_type')!r}, expected {MODEL_TYPE!r}",
                fix="choose a GR00T N1.7 checkpoint, e.g. nvidia/GR00T-N1.7-3B",
            )
        return cls.from_dict(raw)

    def to_dict(self) -> dict[str, Any]:
        """Content of a `config.json`: keys at their default are left out, as published checkpoints do.

        Those that a published checkpoint is known to differ in between code versions are always written.
        """
        default = Architecture()
        kept = {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if entry.name != "extra"
            and (entry.name in _ALWAYS or _plain(getattr(self, entry.name)) != _plain(getattr(default, entry.name)))
        }
        tree = {**self.extra, **kept, "architectures": [MODEL_TYPE], "model_type": MODEL_TYPE}
        return {key: _plain(tree[key]) for key in sorted(tree)}

    def updated(self, changes: Mapping[str, Any]) -> Architecture:
        """A copy with `changes`; of `diffusion_model_cfg` and `vl_self_attention_cfg` the keys given.

        Raises:
            ConfigError: an unknown key.
        """
        known = {entry.name for entry in fields(self)} - {"extra"}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise ConfigError(
                f"Unknown setting: {', '.join(unknown)}.",
                why="it is no key of a GR00T N1.7 config.json",
                fix=f"known: {', '.join(sorted(known))}",
            )
        result = copy.deepcopy(self)
        for key, value in changes.items():
            old = getattr(result, key)
            both = isinstance(old, Mapping) and isinstance(value, Mapping)
            setattr(result, key, copy.deepcopy({**old, **value} if both else value))
        return result

    @property
    def vl_layers(self) -> int:
        """Layers of the self-attention stack on the features."""
        return int((self.vl_self_attention_cfg or {}).get("num_layers", 0))

    def validate(self) -> None:
        """Check what can be checked without loading anything.

        Raises:
            ConfigError: naming the key, the value and what is allowed.
        """
        dit = self.diffusion_model_cfg
        width = _width(dit)
        if width != self.input_embedding_dim:
            raise ConfigError(
                f"input_embedding_dim is {self.input_embedding_dim}, the DiT is {width} wide.",
                why="its width is num_attention_heads * attention_head_dim of diffusion_model_cfg",
                fix=f"set input_embedding_dim={width}",
            )
        if dit.get("output_dim", self.hidden_size) != self.hidden_size:
            raise ConfigError(
                f"hidden_size is {self.hidden_size}, diffusion_model_cfg.output_dim is {dit['output_dim']}.",
                why="the action decoder reads the DiT's output",
                fix="set both to the same number",
            )
        if self.use_alternate_vl_dit and not dit.get("interleave_self_attention", False):
            raise ConfigError(
                "use_alternate_vl_dit needs diffusion_model_cfg.interleave_self_attention=true.",
                why="its cross-attention blocks are the even ones",
                fix="set interleave_self_attention=true, or use_alternate_vl_dit=false",
            )
        if self.vl_layers:
            width = _width(self.vl_self_attention_cfg or {})
            if width != self.backbone_embedding_dim:
                raise ConfigError(
                    f"vl_self_attention_cfg is {width} wide, the features are {self.backbone_embedding_dim}.",
                    why="the stack adds its output to the features",
                    fix="set num_attention_heads * attention_head_dim to backbone_embedding_dim",
                )
        if self.add_pos_embed and self.action_horizon > self.max_seq_len:
            raise ConfigError(
                f"action_horizon is {self.action_horizon}, there are {self.max_seq_len} positions.",
                why="every action token has a learned position",
                fix="raise max_seq_len, or set add_pos_embed=false",
            )
        for key in ("select_layer", "action_horizon", "num_inference_timesteps", "state_history_length"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} is {getattr(self, key)}.", fix="use a whole number of at least 1")


_ALWAYS = ("model_name", "select_layer", "diffusion_model_cfg", "vl_self_attention_cfg", "state_dropout_prob")


def _width(blocks: Mapping[str, Any]) -> int:
    """Width of transformer blocks; a key that is left out has the published implementation's default."""
    return int(blocks.get("num_attention_heads", 8) * blocks.get("attention_head_dim", 64))


def _plain(value: Any) -> Any:
    """JSON-like: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
