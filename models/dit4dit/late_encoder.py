"""A text encoder that is loaded when it is first needed: never, where every prompt's embedding is on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLForConditionalGeneration
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel

log = logging.getLogger(__name__)


class LateTextEncoder(nn.Module):
    """Stands for a frozen text encoder without holding its weights.

    Moves count: loaded later, the encoder goes where this module was moved to. Reading or loading weights loads it.

    Args:
        load: reads the encoder from its files.
        fingerprint: of its weights, known from an earlier run.
    """

    def __init__(self, load: Callable[[], Qwen2_5_VLForConditionalGeneration], fingerprint: str) -> None:
        super().__init__()
        self._load = load
        self._hooks: list[Callable[..., Any]] = []
        self.known_fingerprint: str | None = fingerprint
        self._place: torch.Tensor
        self.register_buffer("_place", torch.empty(0), persistent=False)
        # Hidden from torch, which would register it: names and numbers of parameters must not change by loading.
        self.__dict__["_encoder"] = None

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self.__dict__["_encoder"] is not None

    @property
    def encoder(self) -> Qwen2_5_VLForConditionalGeneration:
        """The encoder; loads it. From then on its weights can change, so the fingerprint no longer counts."""
        if not self.loaded:
            log.info("loading the text encoder")
            made = self._load().requires_grad_(False).eval().to(self._place.device)
            for hook in self._hooks:
                made.register_load_state_dict_post_hook(hook)
            self.__dict__["_encoder"] = made
            self.known_fingerprint = None
        return self.__dict__["_encoder"]

    @property
    def model(self) -> Qwen2_5_VLModel:
        """The published encoder's attribute of this name."""
        return self.encoder.model

    @property
    def config(self) -> Any:
        """The published encoder's configuration."""
        return self.encoder.config

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the encoder."""
        return self.encoder(*args, **kwargs)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Any:
        """Called after weights were loaded into the encoder."""
        self._hooks.append(hook)
        return self.encoder.register_load_state_dict_post_hook(hook) if self.loaded else None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Of the encoder."""
        return self.encoder.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Into the encoder."""
        return self.encoder.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        own = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        if own:
            self.encoder.load_state_dict(own)

    def _apply(self, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> LateTextEncoder:
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        if self.loaded:
            self.encoder._apply(function, recurse)
        return self
