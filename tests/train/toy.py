"""A model and a dataset of a few hundred numbers, which the engine meets as it meets any model."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vla_train.config.schema import Config
from vla_train.data.config import DataConfig
from vla_train.models import ModelEntry

WIDTH = 6


@dataclass
class ToyConfig:
    name: str = "toy"
    dropout: float = 0.0
    counts: bool = False
    poison_at: int = -1
    half_weights: bool = False
    expect_autocast: str = ""
    killed_worker_at: int = -1
    tags: list[str] = field(default_factory=list)


class ToyModel(nn.Module):
    """A frozen encoder, a trunk and a head; the loss is masked and noisy like a policy's."""

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = nn.Linear(WIDTH, 8)
        self.trunk = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(16, 8))
        self.head = nn.Linear(8, WIDTH)
        self.unused = nn.Parameter(torch.zeros(3))
        self.noise_per_sample = True
        self.seen: list[list[str]] = []
        self.signal_step = 0
        self.hang_step = 0
        self.killed_step = 0
        if config.half_weights:
            self.trunk.to(torch.bfloat16)
        if config.counts:
            self.loss_counts = lambda batch: {"action_loss": batch["mask"].sum()}

    unused_parameters_possible = True

    def forward(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        self.seen.append(list(batch["sample_ids"]))
        if len(self.seen) == self.signal_step:
            os.kill(os.getpid(), signal.SIGTERM)
        if len(self.seen) == self.hang_step:
            time.sleep(600)
        if len(self.seen) == self.killed_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.config.expect_autocast:
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") == getattr(torch, self.config.expect_autocast)
        with torch.no_grad():
            features = self.encoder(batch["x"])
        noise = self._noise(batch)
        predicted = self.head(self.trunk(features + noise)).float()
        error = (predicted - batch["y"]) ** 2 * batch["mask"]
        losses = {"action_loss": error.sum() / batch["mask"].sum(), "size_loss": predicted.pow(2).mean()}
        if self.config.poison_at >= 0 and f"toy/{self.config.poison_at}" in batch["sample_ids"]:
            losses["action_loss"] = losses["action_loss"] * float("nan")
        return losses

    def frozen(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder}

    def detach_frozen(self) -> dict[str, nn.Module]:
        frozen = self.frozen()
        if "encoder" in self._modules:
            del self._modules["encoder"]
            self.__dict__["encoder"] = frozen["encoder"]
        return frozen

    def _noise(self, batch: dict[str, Any]) -> torch.Tensor:
        shape = (len(batch["x"]), 8)
        if not self.noise_per_sample:
            return 0.1 * torch.randn(shape)
        rows = []
        for name in batch["sample_ids"]:
            generator = torch.Generator().manual_seed(int(name.split("/")[1]))
            rows.append(torch.randn(8, generator=generator))
        return 0.1 * torch.stack(rows)


class ToyDataset(torch.utils.data.Dataset):
    def __init__(self, length: int = 40, killed_worker_at: int = -1) -> None:
        self.killed_worker_at = killed_worker_at
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(length, WIDTH, generator=generator)
        self.y = self.x.flip(1) * 0.5
        self.epoch = 0
        self.statistics = {"toy": {"num_transitions": length}}

    def __len__(self) -> int:
        return len(self.x)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def sample_id(self, index: int) -> str:
        return f"toy/{(index * 7 + 11 * self.epoch) % len(self)}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.killed_worker_at:
            os.kill(os.getpid(), signal.SIGKILL)
        row = (index * 7 + 11 * self.epoch) % len(self)
        kept = 1 + row % WIDTH
        mask = torch.arange(WIDTH) < kept
        return {"x": self.x[row], "y": self.y[row], "mask": mask, "sample_id": f"toy/{row}"}


def build(config: Config, backend: Any) -> ToyModel:
    return ToyModel(config.model)


def build_dataset(config: Config, video_ctx: Any, split: str) -> ToyDataset:
    return ToyDataset(killed_worker_at=config.model.killed_worker_at)


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    batch: dict[str, Any] = {key: torch.stack([s[key] for s in samples]) for key in ("x", "y", "mask")}
    batch["sample_ids"] = [s["sample_id"] for s in samples]
    return batch


def import_checkpoint(model: ToyModel, path: str, modules: tuple[str, ...] = ()) -> None:
    from safetensors.torch import load_file

    model.load_state_dict(load_file(path))


def export_checkpoint(
    model: ToyModel, run_dir: Path, out: Path, statistics: dict[str, Any], step: int | None = None
) -> list[Path]:
    from safetensors.torch import save_file

    Path(out).mkdir(parents=True, exist_ok=True)
    file = Path(out) / "toy.safetensors"
    save_file(model.state_dict(), str(file), metadata={"transitions": str(statistics["toy"]["num_transitions"])})
    return [file]


_HERE = "tests.train.toy"
entry = ModelEntry(
    name="toy",
    config_class=ToyConfig,
    build=f"{_HERE}:build",
    dataset=f"{_HERE}:build_dataset",
    collate=f"{_HERE}:collate",
    import_checkpoint=f"{_HERE}:import_checkpoint",
    export_checkpoint=f"{_HERE}:export_checkpoint",
)


def config(root: Path, **changes: Any) -> Config:
    """A short run; `changes` are dotted keys with `__` for the dot, e.g. `train__max_steps=3`."""
    made = Config(backend="cpu", model=ToyConfig(), data=DataConfig(batch_size=4, num_workers=0))
    made.run.root, made.run.loggers = str(root), ["jsonl"]
    made.train.max_steps, made.train.warmup_steps, made.train.log_interval = 6, 2, 1
    made.train.save_interval = 3
    made.train.learning_rate = {"base": 1e-2, "head": 3e-2}
    made.parallel.mixed_precision = "fp32"
    for key, value in changes.items():
        *path, last = key.split("__")
        section: Any = made
        for part in path:
            section = getattr(section, part)
        assert hasattr(section, last), key
        setattr(section, last, value)
    return made
