"""GR00T N1.7: a vision-language backbone whose features drive an action diffusion transformer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from vla_backend import AttentionNeeds, Backend
from vla_groot.action_head import ActionHead, HeadLoss
from vla_groot.architecture import Architecture
from vla_groot.backbone import Backbone
from vla_groot.errors import BatchError
from vla_groot.feature_cache import FeatureCache
from vla_groot.features import Features
from vla_train.nn import DiTBlock, Draws, WithFrozenNetworks

QWEN = "backbone.model.model"
_UNDECAYED = re.compile(r"bias|layernorm|rmsnorm|(^|[._])norm(\.|$)")
_NEEDED = ("input_ids", "attention_mask", "state", "embodiment_id")


class Groot(WithFrozenNetworks):
    """The complete model.

    A batch has `input_ids` and `attention_mask` (B, S), `pixel_values` (patches, 1536), `image_grid_thw` (images, 3),
    `state` (B, history, max_state_dim), `embodiment_id` (B,), and for training `action` and `action_mask`
    (B, H, max_action_dim). `embodiment_ids`, a list of the same ids, spares reading them back from the device.

    Args:
        config: the architecture.
        qwen: content of the backbone's `config.json`.
        backend: the active backend.
    """

    def __init__(self, config: Architecture, qwen: dict[str, Any], backend: Backend) -> None:
        super().__init__()
        config.validate()
        self.config = config
        self.qwen_config = qwen
        self.backend = backend
        self.backbone = Backbone(config, qwen, _attention(config, qwen, backend))
        self.action_head = ActionHead(config)
        self.feature_cache: FeatureCache | None = None
        self.draws = Draws(beta_device=backend.sampling_device("beta", torch.device(backend.device_type)))
        self.tune()

    def tune(self) -> None:
        """Make trainable what the `tune_*` settings say, and nothing else."""
        config, head = self.config, self.action_head
        self.backbone.tune(llm=config.tune_llm, visual=config.tune_visual, top_llm_layers=config.tune_top_llm_layers)
        groups: list[tuple[bool, Sequence[nn.Module | None]]] = [
            (
                config.tune_projector,
                (head.state_encoder, head.action_encoder, head.action_decoder, head.position_embedding),
            ),
            (config.tune_diffusion_model, (head.model,)),
            (config.tune_vlln, (head.vlln, head.vl_self_attention)),
        ]
        self._still = [module for tuned, modules in groups if not tuned for module in modules if module is not None]
        for tuned, modules in groups:
            for module in modules:
                if module is not None:
                    module.requires_grad_(tuned)
        self.train(self.training)

    def train(self, mode: bool = True) -> Groot:
        """As in torch; what is not trained stays in eval mode, so it drops nothing."""
        super().train(mode)
        for module in self.__dict__.get("_still", []):
            module.eval()
        return self

    def forward(self, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """`{"action_loss": scalar}` of a batch.

        Raises:
            BatchError: the batch does not fit.
        """
        return {"action_loss": self.compute(batch).loss}

    def compute(self, batch: Mapping[str, Any]) -> HeadLoss:
        """The loss of a batch with its parts.

        Raises:
            BatchError: the batch does not fit.
        """
        _check(batch, (*_NEEDED, "action", "action_mask"))
        dtype = self.head_dtype
        return self.action_head.loss(
            self.features(batch),
            batch["state"].to(dtype),
            batch["action"].to(dtype),
            batch["action_mask"],
            _ids(batch),
            draws=self.draws,
        )

    @torch.no_grad()
    def get_action(
        self,
        batch: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Sample normalised actions.

        Args:
            batch: without `action`; with `action`, the previous chunk (B, H, A), real-time chunking is used.
            options: settings of real-time chunking.
            generator: source of the noise; None uses `self.draws`.

        Returns:
            (B, action_horizon, max_action_dim) in the model's dtype, not clipped.

        Raises:
            BatchError: batch or options do not fit.
        """
        _check(batch, _NEEDED)
        draws = self.draws if generator is None else Draws(generator, self.draws.beta_device)
        return self.action_head.sample(
            self.features(batch),
            batch["state"].to(self.head_dtype),
            _ids(batch),
            draws=draws,
            action_mask=batch.get("action_mask"),
            previous=batch.get("action"),
            options=options,
        )

    def predict_action(self, batch: Mapping[str, Any], generator: torch.Generator | None = None) -> torch.Tensor:
        """Sample normalised actions for a training or evaluation batch, whose own actions are not looked at.

        Returns:
            (B, action_horizon, max_action_dim) float32, not clipped.
        """
        inputs = {key: value for key, value in batch.items() if key != "action"}
        return self.get_action(inputs, generator=generator).float()

    def features(self, batch: Mapping[str, Any]) -> Features:
        """Output of the backbone in the dtype of the action head."""
        # What a robot sees while it acts never comes again, so only training looks at the cache.
        if self.feature_cache is not None and self.training:
            found = self.feature_cache.features(batch)
        else:
            found = self.backbone(
                batch["input_ids"], batch["attention_mask"], batch.get("pixel_values"), batch.get("image_grid_thw")
            )
        found.hidden = found.hidden.to(self.head_dtype)
        return found

    @property
    def head_dtype(self) -> torch.dtype:
        """Dtype of the action head's weights."""
        return self.action_head.model.proj_out_2.weight.dtype

    def frozen(self) -> dict[str, nn.Module]:
        """Networks that are not trained at all, by dotted name."""
        config = self.config
        if not (config.tune_llm or config.tune_visual or config.tune_top_llm_layers):
            return {"backbone": self.backbone}
        found = {}
        if not config.tune_visual:
            found[f"{QWEN}.visual"] = self.backbone.qwen.visual
        if not config.tune_llm and not config.tune_top_llm_layers:
            found[f"{QWEN}.language_model"] = self.backbone.qwen.language_model
        return found

    def compiled_regions(self) -> list[nn.Module]:
        """Blocks that a compiler may take over."""
        qwen = self.backbone.qwen
        own = [module for module in self.action_head.modules() if isinstance(module, DiTBlock)]
        return [*qwen.visual.blocks, *qwen.language_model.layers, *own]

    def cast(self, dtype: torch.dtype) -> Groot:
        """Convert all weights, those of detached networks included; buffers stay as precise as they are."""
        for network in (self, *self.frozen().values()):
            for parameter in network.parameters():
                parameter.data = parameter.data.to(dtype)
        return self

    def loss_counts(self, batch: Mapping[str, Any]) -> dict[str, float]:
        """How many values each loss is the mean over."""
        return {"action_loss": float(batch["action_mask"].sum())}

    @property
    def no_weight_decay(self) -> set[str]:
        """Parameters without weight decay: norms and everything called bias, as transformers' trainer has it.

        The embodiment-specific layers call their bias `b` and so are decayed whole.
        """
        norms = {name for name, module in self.named_modules() if isinstance(module, nn.LayerNorm)}
        return {
            name
            for name, _ in self.named_parameters()
            if name.rpartition(".")[0] in norms or _UNDECAYED.search(name.lower())
        }

    @property
    def unused_parameters_possible(self) -> bool:
        """The final norm of a trained language model gets no gradient, for the features are taken before it."""
        return self.config.tune_llm


def _attention(config: Architecture, qwen: Mapping[str, Any], backend: Backend) -> str:
    if not config.use_flash_attention:
        return "sdpa"
    text = qwen["text_config"]
    head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    return backend.attention_impl(AttentionNeeds(head_dim=head_dim, causal=True, mask="bool", training=config.tune_llm))


def _ids(batch: Mapping[str, Any]) -> torch.Tensor | Sequence[int]:
    return batch["embodiment_ids"] if "embodiment_ids" in batch else batch["embodiment_id"]


def _check(batch: Mapping[str, Any], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in batch]
    if missing:
        raise BatchError(
            f"The batch lacks {', '.join(missing)}.",
            why=f"it has {', '.join(batch)}",
            fix="prepare it with the processor of this checkpoint",
        )
