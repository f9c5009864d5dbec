"""Configuration and folder of the Qwen3-VL backbone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_groot.errors import BackboneError
from vla_groot.hub import SMALL_FILES, find_folder, resolve

# Sub-folder of a checkpoint in which exported checkpoints keep the backbone's small files.
SUBFOLDER = "backbone"

# Cosmos-Reason2-2B is a fine-tuned Qwen3-VL-2B; its repository is gated, the architecture is public.
_QWEN3_VL_2B: dict[str, Any] = {
    "model_type": "qwen3_vl",
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_vl_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 6144,
        "max_position_embeddings": 262144,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "rope_theta": 5000000.0,
        "tie_word_embeddings": True,
        "vocab_size": 151936,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "deepstack_visual_indexes": [5, 11, 17],
        "depth": 24,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 1024,
        "in_channels": 3,
        "initializer_range": 0.02,
        "intermediate_size": 4096,
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "out_hidden_size": 2048,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}
KNOWN: dict[str, dict[str, Any]] = {
    "nvidia/Cosmos-Reason2-2B": _QWEN3_VL_2B,
    "Qwen/Qwen3-VL-2B-Instruct": _QWEN3_VL_2B,
}


@dataclass(frozen=True)
class BackboneFiles:
    """Where a backbone's files come from.

    Attributes:
        name: folder or hub id.
        revision: hub revision.
        near: folders that a relative path may start from.
    """

    name: str
    revision: str | None = None
    near: tuple[Path, ...] = ()

    @classmethod
    def of_checkpoint(cls, name: str, revision: str | None, checkpoint: Path | None) -> BackboneFiles:
        """Files for a checkpoint whose `config.json` names `name`; those kept beside its weights come first."""
        if checkpoint is None:
            return cls(name, revision)
        kept = checkpoint / SUBFOLDER
        if (kept / "config.json").is_file():
            return cls(str(kept))
        return cls(name, revision, (checkpoint, *checkpoint.resolve().parents[:3]))

    def folder(self, *, weights: bool = False) -> Path:
        """The folder with configuration and tokenizer, and with the weights if asked.

        Raises:
            BackboneError: it cannot be had; the message names the remedy.
        """
        patterns = (*SMALL_FILES, "*.safetensors") if weights else SMALL_FILES
        return resolve(
            self.name, revision=self.revision, near=self.near, patterns=patterns, what="backbone", error=BackboneError
        )

    def config(self) -> dict[str, Any]:
        """Content of the backbone's `config.json`; that of a published backbone needs no download.

        Raises:
            BackboneError: it cannot be had, or is no Qwen3-VL configuration.
        """
        folder = find_folder(self.name, self.near)
        if folder is None and self.name in KNOWN:
            return json.loads(json.dumps(KNOWN[self.name]))
        path = (folder or self.folder()) / "config.json"
        try:
            raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BackboneError(
                f"{path} cannot be read.", why=str(error), fix="give the folder of a complete Qwen3-VL model"
            ) from error
        if raw.get("model_type") != "qwen3_vl":
            raise BackboneError(
                f"{self.name} is not a Qwen3-VL model.",
                why=f"{path} says model_type {raw.get('model_type')!r}",
                fix="give nvidia/Cosmos-Reason2-2B, a Qwen3-VL model, or a folder with a copy of one",
            )
        return raw

    def small_files(self) -> Sequence[Path]:
        """Configuration, tokenizer and templates."""
        folder = self.folder()
        return sorted({path for pattern in SMALL_FILES for path in folder.glob(pattern) if "index" not in path.name})
