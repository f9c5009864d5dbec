"""Prompt embeddings of the Qwen2.5-VL text encoder, as Cosmos-Predict2.5 uses them."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from vla_backend import Backend

SYSTEM_PROMPT = "You are a helpful assistant who will provide prompts to an image generator."


class PromptEmbedder:
    """Instructions -> embeddings (S, layers * width), one cached tensor per distinct instruction.

    The text encoder stays where it is; results are moved to the device that asks. It is no `nn.Module`, because the
    encoder is registered elsewhere under its published name.
    """

    def __init__(
        self,
        text_encoder: nn.Module,
        tokenizer: Any,
        *,
        backend: Backend,
        max_sequence_length: int,
        cache_size: int,
        trainable: bool,
    ) -> None:
        self.text_encoder = text_encoder
        self.tokenizer = tokenizer
        self.backend = backend
        self.max_sequence_length = max_sequence_length
        self.cache_size = 0 if trainable else cache_size
        self.trainable = trainable
        self.cache: OrderedDict[str, torch.Tensor] = OrderedDict()
        # New weights make every cached embedding stale.
        text_encoder.register_load_state_dict_post_hook(lambda *_: self.cache.clear())

    def unique(self, instructions: Sequence[str], device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Embeddings of the distinct instructions and the index that expands them to the batch.

        Returns:
            (U, S, layers * width) on `device` in the encoder's dtype, and (B,) int64 with values below U, or None if
            all instructions differ.
        """
        distinct = list(dict.fromkeys(instructions))
        index = None
        if len(distinct) < len(instructions):
            index = torch.tensor([distinct.index(text) for text in instructions], device=device)
        return torch.stack([self._embedding(text, device) for text in distinct]), index

    def token_ids(self, instruction: str) -> torch.Tensor:
        """(1, S) token ids: the chat of system prompt and instruction, cut or padded to `max_sequence_length`."""
        chat = [
            {"role": role, "content": [{"type": "text", "text": text}]}
            for role, text in (("system", SYSTEM_PROMPT), ("user", instruction))
        ]
        # Rendering and tokenising apart gives the same ids under every version of transformers.
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=False, add_vision_id=False
        )
        encoded = self.tokenizer(
            text,
            add_special_tokens=False,
            padding="max_length",
            truncation=True,
            max_length=self.max_sequence_length,
        )
        return torch.tensor([encoded["input_ids"]], dtype=torch.int64)

    def encode(self, token_ids: torch.Tensor) -> torch.Tensor:
        """(B, S) ids -> (B, S, layers * width): every layer's output standardised per token, concatenated.

        No attention mask: attention is causal, so padding after the text does not change it. The language-model head
        is not run.
        """
        language_model = self.text_encoder.model.language_model
        device = language_model.embed_tokens.weight.device
        with torch.no_grad() if not self.trainable else contextlib.nullcontext(), self.backend.fp32_region():
            output = language_model(input_ids=token_ids.to(device), output_hidden_states=True, use_cache=False)
            layers = [_standardise(state.float()) for state in output.hidden_states[1:]]
            return torch.cat(layers, dim=-1).to(output.hidden_states[0].dtype)

    def _embedding(self, instruction: str, device: torch.device) -> torch.Tensor:
        cached = self.cache.get(instruction)
        if cached is None:
            # One at a time: the numbers then do not depend on what else is in the batch.
            cached = self.encode(self.token_ids(instruction))[0].to(device)
            if self.cache_size:
                self.cache[instruction] = cached
                while len(self.cache) > self.cache_size:
                    self.cache.popitem(last=False)
        else:
            self.cache.move_to_end(instruction)
        return cached.to(device)


def _standardise(state: torch.Tensor) -> torch.Tensor:
    return (state - state.mean(dim=-1, keepdim=True)) / (state.std(dim=-1, keepdim=True) + 1e-8)
