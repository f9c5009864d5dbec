"""GR00T's steps the way upstream computes them, on the weights of our model: what the benchmarks compare with.

Nothing here is meant to be fast. Upstream's way: the vision-language model with its language head over all positions,
patches embedded by a three-dimensional convolution, the embodiment's weights gathered anew for every sample, and keys
and values of the features projected at every denoising step.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import Qwen3VLForConditionalGeneration

from vla_groot.action_head import ActionHead
from vla_groot.category import CategoryLinear
from vla_groot.features import Context, Features
from vla_groot.model import Groot


class Upstream(nn.Module):
    """The same losses and actions as `model`, from the same draws, on a copy of its weights."""

    def __init__(self, model: Groot) -> None:
        super().__init__()
        self.draws = model.draws
        self.image_token_id = model.backbone.image_token_id
        self.language_model = _language_model(model)
        self.action_head = copy.deepcopy(model.action_head)
        self.action_head.__class__ = _Head
        for module in self.action_head.modules():
            if isinstance(module, CategoryLinear):
                module.__class__ = _Gathered

    def train(self, mode: bool = True) -> Upstream:
        super().train(mode)
        self.language_model.eval()
        return self

    def forward(self, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """As `Groot.forward`."""
        found = self.action_head.loss(
            self.features(batch),
            batch["state"],
            batch["action"],
            batch["action_mask"],
            batch["embodiment_id"],
            draws=self.draws,
        )
        return {"action_loss": found.loss}

    @torch.inference_mode()
    def get_action(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """As `Groot.get_action`."""
        return self.action_head.sample(self.features(batch), batch["state"], batch["embodiment_id"], draws=self.draws)

    def features(self, batch: Mapping[str, Any]) -> Features:
        """Output of the last layer before the final norm, taken from a pass through the whole model."""
        image_mask = batch["input_ids"] == self.image_token_id
        inputs = {key: batch[key] for key in ("input_ids", "attention_mask", "pixel_values", "image_grid_thw")}
        if "mm_token_type_ids" in inspect.signature(self.language_model.forward).parameters:
            inputs["mm_token_type_ids"] = image_mask.int()
        self.language_model(**inputs, output_hidden_states=True, use_cache=False)
        return Features(self._kept, batch["attention_mask"] == 1, image_mask)

    @property
    def _kept(self) -> torch.Tensor:
        return self.language_model.kept  # type: ignore[no-any-return]


def _language_model(model: Groot) -> Any:
    qwen = copy.deepcopy(model.backbone.qwen)
    qwen.language_model.norm._forward_pre_hooks.clear()
    projection = qwen.visual.patch_embed.proj
    projection.__class__ = nn.Conv3d
    projection.to(memory_format=torch.channels_last_3d)
    projection.register_forward_pre_hook(lambda _, args: args[0].contiguous(memory_format=torch.channels_last_3d))
    whole = Qwen3VLForConditionalGeneration(qwen.config)
    whole.model = qwen
    whole.lm_head.weight = qwen.language_model.embed_tokens.weight

    def keep(_: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        whole.kept = args[0]

    qwen.language_model.norm.register_forward_pre_hook(keep)
    return whole.requires_grad_(False).eval()


class _Gathered(CategoryLinear):
    """One matrix per sample."""

    def forward(self, x: torch.Tensor, embodiments: Any) -> torch.Tensor:
        ids = torch.zeros(len(x), dtype=torch.long, device=x.device)
        for number, rows in embodiments.groups.items():
            ids[rows] = number
        return torch.bmm(x, self.W[ids]) + self.b[ids].unsqueeze(1)


class _Head(ActionHead):
    """Keys and values of all features in every cross-attention, projected anew at every call."""

    def _conditions(self, features: Features, hidden: torch.Tensor, *args: Any) -> Any:
        self.__dict__["seen"] = features, hidden
        return super()._conditions(features, hidden, *args)

    def _velocity(self, actions: torch.Tensor, time: torch.Tensor, given: Any) -> torch.Tensor:
        features, hidden = self.__dict__["seen"]
        period = 2 * self.config.attend_text_every_n_blocks
        text, image = (features.attention_mask & (features.image_mask == kind) for kind in (False, True))
        blocks = list(self.model.transformer_blocks)
        masks = [(text if i % period == 0 else image) if block.cross else None for i, block in enumerate(blocks)]
        context = Context(self.model.encode_context(hidden), masks)
        return super()._velocity(actions, time, replace(given, features=context))
