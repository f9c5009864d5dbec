"""Prompt embeddings of the Qwen2.5-VL text encoder, as Cosmos-Predict2.5 uses them."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vla_backend import Backend
from vla_dit4dit.late_encoder import LateTextEncoder
from vla_dit4dit.prompt_store import PromptStore, fingerprint

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLForConditionalGeneration

SYSTEM_PROMPT = "You are a helpful assistant who will provide prompts to an image generator."


class PromptEmbedder:
    """Instructions -> embeddings (S, layers * width), one cached tensor per distinct instruction.

    The text encoder stays where it is; results are moved to the device that asks. It is no `nn.Module`, because the
    encoder is registered elsewhere under its published name.

    Args:
        text_encoder, tokenizer: of the pipeline.
        backend: the active backend.
        max_sequence_length: S.
        cache_size: instructions kept in memory.
        store: keeps them on disk as well; None for memory alone.
        trainable: gradients reach the encoder, so nothing is kept.
        weights: folder that the encoder was or will be loaded from.
    """

    def __init__(
        self,
        text_encoder: Qwen2_5_VLForConditionalGeneration | LateTextEncoder,
        tokenizer: Any,
        *,
        backend: Backend,
        max_sequence_length: int,
        cache_size: int,
        store: PromptStore | None = None,
        trainable: bool = False,
        weights: Path | None = None,
    ) -> None:
        self.text_encoder = text_encoder
        self.tokenizer = tokenizer
        self.backend = backend
        self.max_sequence_length = max_sequence_length
        self.cache_size = 0 if trainable else cache_size
        self.store = None if trainable else store
        self.trainable = trainable
        self.cache: OrderedDict[str, torch.Tensor] = OrderedDict()
        self.weights = weights
        self._fingerprint: str | None = None
        text_encoder.register_load_state_dict_post_hook(lambda *_: self.forget())

    def forget(self) -> None:
        """New weights make every cached embedding stale."""
        self.cache.clear()
        self._fingerprint = self.weights = None

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
            cached = self._stored(instruction).to(device)
            if self.cache_size:
                self.cache[instruction] = cached
                while len(self.cache) > self.cache_size:
                    self.cache.popitem(last=False)
        else:
            self.cache.move_to_end(instruction)
        return cached.to(device)

    def _stored(self, instruction: str) -> torch.Tensor:
        """From the disk, or computed: one at a time, so that the numbers do not depend on the rest of a batch."""
        token_ids = self.token_ids(instruction)
        if self.store is None:
            return self.encode(token_ids)[0]
        path = self.store.path(self._encoder(), token_ids)
        embedding = self.store.load(path)
        if embedding is None:
            embedding = self.encode(token_ids)[0]
            self.store.save(path, embedding, instruction)
        return embedding

    def _encoder(self) -> str:
        """The encoder's fingerprint; noted for the next run while its weights are those of its files."""
        late = isinstance(self.text_encoder, LateTextEncoder)
        known = self.text_encoder.known_fingerprint if isinstance(self.text_encoder, LateTextEncoder) else None
        if known:
            return known
        if self._fingerprint is None:
            language_model = self.text_encoder.model.language_model
            self._fingerprint = fingerprint(language_model.state_dict())
            if self.store is not None and self.weights is not None and not late:
                self.store.remember(self.weights, language_model.dtype, self._fingerprint)
        return self._fingerprint


def _standardise(state: torch.Tensor) -> torch.Tensor:
    return (state - state.mean(dim=-1, keepdim=True)) / (state.std(dim=-1, keepdim=True) + 1e-8)
