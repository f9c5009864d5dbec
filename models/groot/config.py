"""The `model:` section of a configuration. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vla_groot.errors import ConfigError


@dataclass
class ProcessorConfig:
    """What is changed of the base checkpoint's processor; null keeps its setting.

    Attributes:
        formalize_language: lower-case the instruction and strip punctuation.
        use_percentiles: normalise with the 1st and 99th percentile instead of minimum and maximum.
        clip_outliers: clip normalised states and actions to [-1, 1].
        apply_sincos_state_encoding: sine and cosine of the angles an embodiment marks as such.
        use_relative_action: actions an embodiment marks as relative are taken relative to the state.
        exclude_state: always feed zeros as state.
        state_dropout_prob: chance that a training sample's state is fed as zeros.
        shortest_image_edge: pixels of the shorter side of a view.
        crop_fraction: share of height and width that is kept: random in training, central otherwise.
        image_target_size, image_crop_size: the older way to say the same two things, [height, width] in pixels.
        use_albumentations: keep the aspect ratio of views; false squashes them to `image_target_size`.
        letter_box_transform: pad views to squares first.
        random_rotation_angle: rotate views by up to so many degrees in training.
        color_jitter_params: brightness, contrast, saturation and hue of the colour jitter in training.
        extra_augmentation_config: not supported; null.
    """

    formalize_language: bool | None = None
    use_percentiles: bool | None = None
    clip_outliers: bool | None = None
    apply_sincos_state_encoding: bool | None = None
    use_relative_action: bool | None = None
    exclude_state: bool | None = None
    state_dropout_prob: float | None = None
    shortest_image_edge: int | None = None
    crop_fraction: float | None = None
    image_target_size: list[int] | None = None
    image_crop_size: list[int] | None = None
    use_albumentations: bool | None = None
    letter_box_transform: bool | None = None
    random_rotation_angle: int | None = None
    color_jitter_params: dict[str, float] | None = None
    extra_augmentation_config: dict[str, Any] | None = None


@dataclass
class SamplingConfig:
    """How steps are dealt into shards, and shards into epochs.

    Attributes:
        shard_size: steps of a shard aimed at.
        episode_sampling_rate: share of an episode's steps that come into one shard.
        shards_per_epoch: shards drawn with one seed before the next.
        size_exponent: multiplies the weight of every dataset by its number of shards to this power; 0 leaves the
            weights as given, 1 draws larger datasets more often, as their sizes are.
    """

    shard_size: int = 1024
    episode_sampling_rate: float = 0.1
    shards_per_epoch: int = 100_000
    size_exponent: float = 0.0


@dataclass
class GrootConfig:
    """GR00T N1.7, fine-tuned from a base checkpoint.

    Attributes:
        name: "groot".
        base_model: folder or hub id of the checkpoint to start from; empty builds `architecture` with a new head.
        base_revision: its hub revision.
        backbone: folder or hub id of the backbone's configuration and tokenizer; empty takes what the checkpoint names.
        embodiment_tag: embodiment of datasets that name none.
        modality_config: a .py or .yaml file with the modality configurations of own embodiments.
        tune_llm: train the language model.
        tune_visual: train the vision tower.
        tune_top_llm_layers: train this many of the last language layers.
        tune_projector: train state encoder, action encoder, action decoder and positions.
        tune_diffusion_model: train the diffusion transformer.
        tune_vlln: train norm and self-attention of the features.
        state_dropout_prob: chance that the head drops a training sample's state; null keeps the checkpoint's.
        load_bf16: keep the frozen backbone in bfloat16.
        gradient_checkpointing: recompute the backbone's layers in the backward pass to save memory.
        augment_images: crop, rotate and jitter training images at random; false prepares them as for evaluation.
        feature_cache: keep the frozen backbone's features of training samples in
            $XDG_CACHE_HOME/vla-backend/features, 8 kB a token at full size; needs augment_images=false.
        feature_cache_gb: size of that folder; the features used longest ago are removed first.
        architecture: keys of the checkpoint's config.json to change, or all of them without a checkpoint.
        processor: what is changed of its processor.
        action_steps: action steps of an embodiment without modality configs, whose datasets are read whole.
        statistics: "dataset" normalises an embodiment the checkpoint knows with the statistics of the new data,
            "checkpoint" with those it was trained on.
        sampling: how the data is cut into shards.
    """

    name: str = "groot"
    base_model: str = ""
    base_revision: str | None = None
    backbone: str = ""
    embodiment_tag: str = "new_embodiment"
    modality_config: str | None = None
    tune_llm: bool = False
    tune_visual: bool = False
    tune_top_llm_layers: int = 0
    tune_projector: bool = True
    tune_diffusion_model: bool = True
    tune_vlln: bool = True
    state_dropout_prob: float | None = 0.2
    load_bf16: bool = False
    gradient_checkpointing: bool = False
    augment_images: bool = True
    feature_cache: bool = False
    feature_cache_gb: float = 200.0
    architecture: dict[str, Any] = field(default_factory=dict)
    processor: ProcessorConfig = field(default_factory=ProcessorConfig)
    action_steps: int = 16
    statistics: str = "dataset"
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def problems(self) -> list[tuple[str, str, str]]:
        """What is wrong with the values alone, as (key, message, remedy); reads no file."""
        found: list[tuple[str, str, str]] = []
        if not self.base_model and not self.architecture:
            found.append(
                (
                    "model.base_model",
                    "is empty, but fine-tuning starts from a checkpoint",
                    "set it to a folder or hub id, e.g. nvidia/GR00T-N1.7-3B; or describe model.architecture to start "
                    "with a new head",
                )
            )
        if self.statistics not in ("dataset", "checkpoint"):
            found.append(("model.statistics", f"is {self.statistics!r}", "use dataset or checkpoint"))
        found += self._feature_cache_problems()
        rate = self.sampling.episode_sampling_rate
        if not 0 < rate <= 1:
            found.append(("model.sampling.episode_sampling_rate", f"is {rate}", "use a share above 0, at most 1"))
        counts = {
            "model.sampling.shard_size": (self.sampling.shard_size, 1),
            "model.sampling.shards_per_epoch": (self.sampling.shards_per_epoch, 1),
            "model.action_steps": (self.action_steps, 1),
            "model.tune_top_llm_layers": (self.tune_top_llm_layers, 0),
        }
        found += [
            (key, f"is {value}", f"use a whole number of at least {least}")
            for key, (value, least) in counts.items()
            if value < least
        ]
        shares = {
            "model.state_dropout_prob": self.state_dropout_prob,
            "model.processor.state_dropout_prob": self.processor.state_dropout_prob,
        }
        found += [
            (key, f"is {value}", "use a probability")
            for key, value in shares.items()
            if value is not None and not 0 <= value <= 1
        ]
        return found

    def _feature_cache_problems(self) -> list[tuple[str, str, str]]:
        if not self.feature_cache:
            return []
        key, found = "model.feature_cache", []
        if self.augment_images:
            found.append(
                (key, "is true, but training images are augmented at random", "set model.augment_images=false")
            )
        for name in ("tune_llm", "tune_visual", "tune_top_llm_layers"):
            if getattr(self, name):
                found.append((key, f"is true, but model.{name} trains the backbone", "train it, or keep its features"))
        if self.feature_cache_gb <= 0:
            found.append(("model.feature_cache_gb", f"is {self.feature_cache_gb}", "give it a size"))
        return found

    def validate(self) -> None:
        """Raise the first of `problems` as a `ConfigError`."""
        for key, message, remedy in self.problems():
            raise ConfigError(f"{key} {message}.", fix=remedy)

    def changes(self) -> dict[str, Any]:
        """Keys of the checkpoint's `config.json` that this configuration sets."""
        flags = ("llm", "visual", "top_llm_layers", "projector", "diffusion_model", "vlln")
        tuned = {f"tune_{flag}": getattr(self, f"tune_{flag}") for flag in flags}
        dropout = {} if self.state_dropout_prob is None else {"state_dropout_prob": self.state_dropout_prob}
        return {**self.architecture, **tuned, **dropout, "load_bf16": self.load_bf16}
