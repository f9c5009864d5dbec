"""DiT4DiT: a video diffusion transformer whose features drive an action diffusion transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from vla_backend import Backend
from vla_dit4dit.action_head import FlowMatchingActionHead
from vla_dit4dit.backbone import CosmosBackbone, CosmosExtractor
from vla_dit4dit.config import ConfigError, DiT4DiTConfig
from vla_dit4dit.cosmos import CosmosParts, load_parts
from vla_dit4dit.data.images import Layout
from vla_dit4dit.errors import BatchError
from vla_train.nn import Draws, WithFrozenNetworks

BACKBONE = "backbone_interface.extractor"


def build(config: Any, backend: Backend) -> DiT4DiT:
    """Build the model on the CPU with the video model's published weights and a new action head.

    Args:
        config: complete configuration; `config.model` is a `DiT4DiTConfig`, `config.data` gives the clip's length.
        backend: the active backend.

    Raises:
        ConfigError: a setting that cannot work.
        PipelineError: the video model does not load or does not fit.
    """
    config.model.validate()
    return DiT4DiT(
        config.model,
        load_parts(config.model.backbone, backend),
        backend,
        clip_frames=clip_frames(config.data.video_delta_indices, config.data.action_video_freq_ratio),
        state_optional=_state_optional(config.data),
        image_size=config.data.image_size,
        extra_views=config.data.extra_views,
    )


def clip_frames(video_delta_indices: list[int] | None, ratio: int) -> int | None:
    """Pixel frames of a clip: every `ratio`-th of the window's frames; None if the window is not configured."""
    return None if video_delta_indices is None else len(range(0, len(video_delta_indices), ratio))


class DiT4DiT(WithFrozenNetworks):
    """The complete model.

    Args:
        config: the `model:` section.
        parts: the networks of the video model.
        backend: the active backend.
        clip_frames: pixel frames T of a clip, the same in training and inference; None takes those of the batch.
        state_optional: batches may come without state although the head encodes one.
        image_size, extra_views: how raw views become images; see `vla_dit4dit.data.images.arrange`.

    A batch has `images` (B, T, 3, H, W) in [0, 1] with the observation as frame 0 (or `views`, (B, T, 3, h, w) uint8
    by view, from which they are made), `lang` (B texts), `action`
    (B, A, D), `action_mask` (B, A, D) and, if there is a state, `state` (B, 1, S).
    """

    def __init__(
        self,
        config: DiT4DiTConfig,
        parts: CosmosParts,
        backend: Backend,
        *,
        clip_frames: int | None = None,
        state_optional: bool = False,
        image_size: Sequence[int] = (224, 224),
        extra_views: str = "concat",
    ) -> None:
        super().__init__()
        config.validate()
        self.config = config
        self.backend = backend
        self.state_optional = state_optional
        self.image_size, self.extra_views = tuple(image_size), extra_views
        self.backbone_interface = CosmosBackbone(
            CosmosExtractor(
                parts,
                config.backbone,
                backend,
                clip_frames=clip_frames,
                checkpointing=config.gradient_checkpointing,
            )
        )
        extractor = self.backbone_interface.extractor
        self.action_model: FlowMatchingActionHead | None = None
        if config.mode != "video":
            wanted = config.action_head.cross_attention_dim
            if wanted is not None and wanted != extractor.width:
                raise ConfigError(
                    f"model.action_head.cross_attention_dim is {wanted} but the video transformer's features are "
                    f"{extractor.width} wide; set it to {extractor.width} or to null"
                )
            self.action_model = FlowMatchingActionHead(config.action_head, extractor.width)
        for network in self.frozen().values():
            network.requires_grad_(False)
        # Where the chip has no Dirichlet kernel the backend names another device for the Beta draws.
        self.draws = Draws(beta_device=backend.sampling_device("beta", torch.device(backend.device_type)))
        self.train()

    def forward(self, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Losses of one batch.

        Returns:
            Scalars: `action_loss` in the modes joint and action, `future_video_loss` in the modes joint and video if
            the batch has future frames. No gradient flows from the action loss into the video model.

        Raises:
            BatchError: the batch does not fit; in mode video also if it has no future frames.
        """
        mode, images = self.config.mode, self._images(batch)
        if mode == "video" and images.shape[1] < 2:
            raise BatchError(
                "Mode video got a batch without future frames.",
                why=f"images have {images.shape[1]} frame",
                fix="set data.video_delta_indices to more than one frame",
            )
        output = self.backbone_interface(
            images,
            batch["lang"],
            draws=self.draws,
            features=self.action_model is not None,
            sample_ids=batch.get("sample_ids"),
            video_loss=mode != "action",
        )
        losses = {}
        if self.action_model is not None:
            with self.backend.fp32_region():
                losses["action_loss"] = self.action_model.loss(
                    output.features.float(),
                    batch["action"].float(),
                    batch["action_mask"],
                    _state(batch),
                    draws=self.draws,
                    repeats=self.config.repeated_diffusion_steps,
                )
        if output.future_video_loss is not None:
            losses["future_video_loss"] = output.future_video_loss
        return losses

    @torch.no_grad()
    def predict_action(self, batch: Mapping[str, Any], generator: torch.Generator | None = None) -> torch.Tensor:
        """Sample normalised actions.

        Args:
            batch: `images` (B, T, 3, H, W) of which frame 0 is used, `lang`, and `state` if the model was trained so.
            generator: source of all noise; the same state gives the same actions. None uses `self.draws`.

        Returns:
            (B, H, D) float32, not clipped.

        Raises:
            BatchError: the model has no action head, or the batch does not fit.
        """
        if self.action_model is None:
            raise BatchError(
                "This model predicts no actions.",
                why="it was built in mode video, which has no action head",
                fix="use mode joint or action",
            )
        images, draws = self._images(batch), self.draws
        if generator is not None:
            draws = Draws(generator, self.draws.beta_device)
        # A single frame would fix the clip's length wrongly if it is not configured, so the frames stay in the batch.
        output = self.backbone_interface(images, batch["lang"], draws=draws, features=True, video_loss=False)
        if generator is None and self.config.mode == "joint":
            # Upstream evaluates on whole training samples, and the video loss computed on the way takes its draws.
            self.backbone_interface.extractor.skip_loss_draws(images, draws)
        with self.backend.fp32_region():
            return self.action_model.sample(output.features.float(), _state(batch), draws=draws)

    def _images(self, batch: Mapping[str, Any]) -> torch.Tensor:
        if "views" not in batch:
            return batch["images"]
        return Layout(self.image_size, self.extra_views).clip(batch["views"])

    def frozen(self) -> dict[str, nn.Module]:
        """Networks that are never trained in this mode, by dotted name."""
        extractor = self.backbone_interface.extractor
        names = ["vae"]
        if not self.config.backbone.train_text_encoder or self.config.mode == "action":
            names.insert(0, "text_encoder")
        if self.config.mode == "action":
            names.append("transformer")
        return {f"{BACKBONE}.{name}": getattr(extractor, name) for name in names}

    def compiled_regions(self) -> list[nn.Module]:
        """Blocks that a compiler may take over."""
        blocks = list(self.backbone_interface.extractor.transformer.transformer_blocks)
        return blocks if self.action_model is None else [*blocks, *self.action_model.model.transformer_blocks]

    @property
    def frozen_on_host(self) -> tuple[str, ...]:
        """Those of `frozen()` that the configuration wants in host memory."""
        return (f"{BACKBONE}.text_encoder",) if self.config.backbone.text_encoder_on_host else ()

    def full_state_dict(self, trained: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """As in `WithFrozenNetworks`, in the order of published checkpoints."""
        state = super().full_state_dict(trained)
        order = [f"{BACKBONE}.{part}." for part in ("text_encoder", "transformer", "vae")]
        position = {prefix: index for index, prefix in enumerate(order)}

        def rank(key: str) -> int:
            return next((index for prefix, index in position.items() if key.startswith(prefix)), len(order))

        return dict(sorted(state.items(), key=lambda item: rank(item[0])))

    def loss_counts(self, batch: Mapping[str, Any]) -> dict[str, float]:
        """Elements that the action loss is a mean over, so that batches with unequal masks are weighed by them."""
        if self.action_model is None:
            return {}
        horizon = self.action_model.config.action_horizon
        return {"action_loss": float(batch["action_mask"][:, -horizon:].sum())}

    @property
    def predicts_actions(self) -> bool:
        """False in mode video, which has no action head."""
        return self.action_model is not None

    @property
    def unused_parameters_possible(self) -> bool:
        """A trained parameter may get no gradient in some step, so data-parallel training must look for such."""
        no_future = self.config.mode == "joint" and self.backbone_interface.extractor.clip_frames == 1
        no_state = self.action_model is not None and self.action_model.state_encoder is not None and self.state_optional
        return no_future or no_state


def _state(batch: Mapping[str, Any]) -> torch.Tensor | None:
    state = batch.get("state")
    return None if state is None else state.float()


def _state_optional(data: Any) -> bool:
    """Some configured robot has no state."""
    return any(robot.state_keys is not None and not robot.state_keys for robot in data.robots.values())
