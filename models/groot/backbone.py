"""The vision-language backbone: the first layers of a Qwen3-VL model."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vla_groot.architecture import Architecture
from vla_groot.errors import BackboneError, BatchError
from vla_groot.features import Features, split_tokens
from vla_groot.positions import mrope_positions


class _PatchProjection(nn.Conv3d):
    """A convolution whose window covers its whole input, so it is a matrix product; chips are better at those.

    In float32 on a CPU it stays the published convolution, so that what was recorded there is met to the last digits.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.is_cpu and input.dtype == torch.float32:
            return super().forward(input.contiguous(memory_format=torch.channels_last_3d))
        return functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)


class Backbone(nn.Module):
    """Images and text -> features: output of the last kept language layer, before the final norm.

    The language head is not part of it. `self.model["model"]` is a transformers `Qwen3VLModel` with `select_layer`
    language layers.

    Args:
        config: the architecture.
        qwen: content of the backbone's `config.json`.
        attention: attention implementation of transformers.

    Raises:
        BackboneError: the widths or the number of layers do not fit.
    """

    def __init__(self, config: Architecture, qwen: dict[str, Any], attention: str = "sdpa") -> None:
        super().__init__()
        from transformers import Qwen3VLConfig, Qwen3VLModel

        layers, width = qwen["text_config"]["num_hidden_layers"], qwen["text_config"]["hidden_size"]
        if config.select_layer > layers:
            raise BackboneError(
                f"select_layer is {config.select_layer}, the backbone has {layers} language layers.",
                why="the first select_layer of them are kept",
                fix="lower select_layer, or choose a larger backbone",
            )
        if config.backbone_embedding_dim != width:
            raise BackboneError(
                f"backbone_embedding_dim is {config.backbone_embedding_dim}, the backbone's text width is {width}.",
                why="the features are the language model's hidden states",
                fix=f"set backbone_embedding_dim={width}, or choose the backbone the checkpoint was trained with",
            )
        text = {**qwen["text_config"], "num_hidden_layers": config.select_layer, "use_cache": False}
        settings = Qwen3VLConfig(**{**qwen, "text_config": text})
        model = Qwen3VLModel._from_config(settings, attn_implementation=attention)
        model.visual.patch_embed.proj.__class__ = _PatchProjection
        self.model = nn.ModuleDict({"model": model})
        self.image_token_id = int(settings.image_token_id)
        vision: Any = settings.vision_config
        self.merge = int(vision.spatial_merge_size)
        self._features: torch.Tensor | None = None
        # What enters the final norm is the wanted output in every version of transformers.
        model.language_model.norm.register_forward_pre_hook(self._keep)
        self.eval()

    @property
    def qwen(self) -> Any:
        """The `Qwen3VLModel`."""
        return self.model["model"]

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        pixel_values: torch.Tensor | None = None,
        image_grid_thw: torch.Tensor | None = None,
    ) -> Features:
        """Features of every token.

        Args:
            input_ids: (B, S), padded on the left.
            attention_mask: (B, S), zero at padding.
            pixel_values: (patches, 1536), the patches of all images one after the other.
            image_grid_thw: (images, 3), patches per image in time, height, width.

        Raises:
            BatchError: image tokens, patches and grids do not match.
        """
        real, image_mask = attention_mask == 1, input_ids == self.image_token_id
        # All that needs values on the host comes first, so that nothing waits for the backbone afterwards.
        positions = mrope_positions(attention_mask, image_mask, image_grid_thw, self.merge)
        text, image = split_tokens(real, image_mask, input_ids.device)
        if pixel_values is not None and image_grid_thw is not None:
            wanted = int(image_grid_thw.prod(-1).sum())
            if pixel_values.shape[0] != wanted:
                raise BatchError(
                    f"pixel_values has {pixel_values.shape[0]} patches, image_grid_thw says {wanted}.",
                    why="both describe the images of the batch",
                    fix="prepare them together",
                )
        # A frozen backbone needs no graph.
        quiet = contextlib.nullcontext() if self.trainable else torch.no_grad()
        with quiet:
            self.qwen(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=positions,
                pixel_values=pixel_values,
                image_grid_thw=image_grid_thw,
                use_cache=False,
            )
        features, self._features = self._features, None
        if features is None:
            raise RuntimeError("the final norm of the language model was not reached")
        return Features(features, real, image_mask, text, image)

    @property
    def trainable(self) -> bool:
        """Whether any weight is trained."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def tune(self, *, llm: bool, visual: bool, top_llm_layers: int) -> None:
        """Choose what is trained: the language model, the vision tower, or only the last language layers."""
        self.requires_grad_(True)
        language = self.qwen.language_model
        language.requires_grad_(llm)
        self.qwen.visual.requires_grad_(visual)
        for layer in language.layers[len(language.layers) - top_llm_layers :] if top_llm_layers else []:
            layer.requires_grad_(True)
        self._frozen = [tower for tower, tuned in ((language, llm), (self.qwen.visual, visual)) if not tuned]
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """As in torch; frozen towers stay in eval mode."""
        super().train(mode)
        for tower in self.__dict__.get("_frozen", []):
            tower.eval()
        return self

    def round_frequencies(self, dtype: torch.dtype) -> None:
        """Store the frequencies of the rotary embeddings in `dtype`.

        Converting a whole model does so, as the published policy does, and DeepSpeed when it trains in bfloat16.
        """
        for module in self.qwen.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name.endswith("inv_freq"):
                    setattr(module, name, buffer.to(dtype))

    def _keep(self, _: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        self._features = args[0]
