"""A DiT4DiT small enough for seconds, large enough that its memory is that of training; data are random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch

from vla_dit4dit.config import ActionHeadConfig, BackboneConfig, DiT4DiTConfig
from vla_dit4dit.cosmos import CosmosParts
from vla_dit4dit.model import DiT4DiT
from vla_dit4dit.tiny import (
    TinySpec,
    build_scheduler,
    build_text_encoder,
    build_tokenizer,
    build_transformer,
    build_vae,
)
from vla_train.config.schema import Config
from vla_train.data.config import DataConfig
from vla_train.models import ModelEntry

FRAMES, SIZE = 5, 64
SPEC = TinySpec(width=256, heads=4, layers=4)


class Numbers(torch.utils.data.Dataset):
    statistics: ClassVar[dict[str, Any]] = {}

    def __len__(self) -> int:
        return 64

    def set_epoch(self, epoch: int) -> None:
        pass

    def sample_id(self, index: int) -> str:
        return f"numbers/{index}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        return {
            "images": torch.rand(FRAMES, 3, SIZE, SIZE, generator=generator),
            "lang": "push the button",
            "action": torch.rand(8, 4, generator=generator),
            "action_mask": torch.ones(8, 4, dtype=torch.bool),
            "state": torch.rand(1, 4, generator=generator),
            "sample_id": self.sample_id(index),
        }


def build(config: Config, backend: Any) -> DiT4DiT:
    tokenizer = build_tokenizer()
    parts = CosmosParts(
        build_text_encoder(SPEC, tokenizer), tokenizer, build_transformer(SPEC), build_vae(SPEC), build_scheduler()
    )
    return DiT4DiT(config.model, parts, backend, clip_frames=FRAMES)


def build_dataset(config: Config, video_ctx: Any, split: str) -> Numbers:
    return Numbers()


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    batch: dict[str, Any] = {
        key: torch.stack([sample[key] for sample in samples]) for key in ("images", "action", "action_mask", "state")
    }
    return {**batch, "lang": [s["lang"] for s in samples], "sample_ids": [s["sample_id"] for s in samples]}


_HERE = "tests.doctor.small"
entry = ModelEntry(
    name="small",
    config_class=DiT4DiTConfig,
    build=f"{_HERE}:build",
    dataset=f"{_HERE}:build_dataset",
    collate=f"{_HERE}:collate",
)


def config(root: Path, strategy: str = "ddp", precision: str = "fp32", processes: int = 1, **model: Any) -> Config:
    head = ActionHeadConfig(
        num_attention_heads=4, attention_head_dim=32, num_layers=4, output_dim=128, hidden_size=256, action_dim=4,
        state_dim=4, action_horizon=8, max_seq_len=8, dropout=0.0, final_dropout=False,
    )  # fmt: skip
    backbone = BackboneConfig(path="random", extract_layer=1, max_sequence_length=48, prompt_disk_cache=None)
    made = Config(
        backend="cpu",
        model=DiT4DiTConfig(name="small", backbone=backbone, action_head=head, **model),
        data=DataConfig(batch_size=8, num_workers=0),
    )
    made.run.root, made.run.loggers = str(root), []
    made.train.max_steps, made.train.save_interval, made.train.learning_rate = 10, 0, {"base": 1e-4}
    made.parallel.strategy, made.parallel.mixed_precision, made.parallel.processes = strategy, precision, processes
    # Buckets in proportion to the model; the usual ones are as large as a hundred of it.
    buckets = {"reduce_bucket_size": 500_000, "allgather_bucket_size": 500_000}
    made.parallel.deepspeed = {"zero_optimization": buckets} if strategy != "ddp" else None
    return made
