"""The usual fine-tuning options on the command line, and the engine's settings that suit this model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Published fine-tuning settings; of the two AdamWs published ones use, the fused one.
DEFAULTS: dict[str, Any] = {
    "train": {
        "max_steps": 10_000,
        "warmup_steps": 500,
        "save_interval": 1000,
        "keep_checkpoints": 5,
        "learning_rate": {"base": 1e-4},
        "scheduler": {"name": "cosine"},
        "optimizer": {"betas": [0.9, 0.999], "weight_decay": 1e-5, "fused": True},
    },
}


def _sets(*keys: str) -> Callable[[str], Sequence[str]]:
    return lambda text: [f"{key}={text}" for key in keys]


def _datasets(text: str) -> Sequence[str]:
    """Folders separated by colons, drawn as their sizes are."""
    listed = [f"{{path: '{path}'}}" for path in text.split(":") if path]
    weights = ["model.sampling.size_exponent=1"] if len(listed) > 1 else []
    return [f"data.datasets=[{','.join(listed)}]", *weights]


_KEYS: dict[str, str] = {
    "base-model": "model.base_model",
    "base-model-path": "model.base_model",
    "embodiment-tag": "model.embodiment_tag",
    "modality-config": "model.modality_config",
    "modality-config-path": "model.modality_config",
    "backbone": "model.backbone",
    "tune-llm": "model.tune_llm",
    "tune-visual": "model.tune_visual",
    "tune-top-llm-layers": "model.tune_top_llm_layers",
    "tune-projector": "model.tune_projector",
    "tune-diffusion-model": "model.tune_diffusion_model",
    "tune-vlln": "model.tune_vlln",
    "state-dropout-prob": "model.state_dropout_prob",
    "augment-images": "model.augment_images",
    "feature-cache": "model.feature_cache",
    "random-rotation-angle": "model.processor.random_rotation_angle",
    "color-jitter-params": "model.processor.color_jitter_params",
    "use-percentiles": "model.processor.use_percentiles",
    "crop-fraction": "model.processor.crop_fraction",
    "shortest-image-edge": "model.processor.shortest_image_edge",
    "letter-box-transform": "model.processor.letter_box_transform",
    "use-relative-action": "model.processor.use_relative_action",
    "shard-size": "model.sampling.shard_size",
    "episode-sampling-rate": "model.sampling.episode_sampling_rate",
    "num-shards-per-epoch": "model.sampling.shards_per_epoch",
    "ds-weights-alpha": "model.sampling.size_exponent",
    "batch-size": "data.batch_size",
    "num-workers": "data.num_workers",
    "max-steps": "train.max_steps",
    "save-steps": "train.save_interval",
    "save-total-limit": "train.keep_checkpoints",
    "warmup-steps": "train.warmup_steps",
    "learning-rate": "train.learning_rate.base",
    "weight-decay": "train.optimizer.weight_decay",
    "gradient-accumulation-steps": "train.gradient_accumulation_steps",
    "num-gpus": "parallel.processes",
    "output-dir": "run.root",
    "experiment-name": "run.id",
}

OPTIONS: dict[str, Callable[[str], Sequence[str]]] = {
    **{name: _sets(key) for name, key in _KEYS.items()},
    "dataset": _datasets,
    "dataset-path": _datasets,
    "seed": _sets("run.seed", "data.seed"),
}
