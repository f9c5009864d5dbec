"""Small random weights by format, for tests: Qwen3-VL as transformers writes it, and a whole GR00T N1.7 checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from vla_groot import tiny
from vla_groot.tiny import TinySpec


def save_qwen3_vl(folder: Path, spec: TinySpec | None = None) -> None:
    """Write a Qwen3-VL model with tokenizer and preprocessor; leaves torch's random state as it was."""
    spec = spec or TinySpec()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny.build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        settings = tiny.qwen_config(spec, tokenizer)
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        AutoModelForImageTextToText.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(tiny.preprocessor_config(spec), indent=2) + "\n")


def save_groot(folder: Path, spec: TinySpec | None = None) -> None:
    """Write a GR00T N1.7 checkpoint in the hub's layout."""
    from vla_backend import activate

    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    tiny.save(folder, backend, spec or TinySpec())
