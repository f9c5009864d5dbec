"""Three recorded training steps of upstream's DiT4DiT, replayed through the engine by one rank or two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from vla_backend import activate
from vla_dit4dit.config import ActionHeadConfig, BackboneConfig, DiT4DiTConfig, FlowMatchingConfig
from vla_dit4dit.model import build as build_dit4dit
from vla_train.checkpoint.export import export
from vla_train.config.schema import Config, OptimizerConfig, SchedulerConfig
from vla_train.data.config import DataConfig
from vla_train.models import ModelEntry
from vla_train.nn import Draws
from vla_train.train.loop import Trainer
from vla_train.train.run import local_rank
from vla_train.train.setup import Parts, set_up
from vla_train.train.world import join

DATA = Path(__file__).parents[1] / "data" / "dit4dit"
STEPS = 3
PARTS = ("images", "action", "action_mask", "state")


def recorded() -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Tensors by name, and upstream's log of every step."""
    with safe_open(DATA / "train_3steps.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["log"])


class SharedDraws(Draws):
    """This rank's share of the recorded draws; after the last recorded step the first comes again."""

    def __init__(self, tensors: dict[str, torch.Tensor], rank: int, world_size: int) -> None:
        super().__init__()
        self.queue: list[torch.Tensor] = []
        self.steps = 0
        self._all = [
            [tensors[key] for key in sorted(tensors) if key.startswith(f"step{step}.draw.")] for step in range(STEPS)
        ]
        self._rank, self._world = rank, world_size

    def _next(self, shape: tuple[int, ...]) -> torch.Tensor:
        if not self.queue:
            whole = self._all[self.steps % STEPS]
            # One draw per sample, or rows of samples (repeated copies come sample by sample).
            single = whole[:2][self._rank :: self._world]
            self.queue = single + [draw[self._rank :: self._world] for draw in whole[2:]]
            self.steps += 1
        draw = self.queue.pop(0)
        assert draw.shape == tuple(shape), (draw.shape, shape)
        return draw.clone()

    def randn(self, shape, *, device, dtype=torch.float32):
        return self._next(shape)

    def rand(self, shape, *, device, dtype=torch.float32):
        return self._next(shape)

    def randn_like(self, tensor):
        return self._next(tensor.shape)

    def beta(self, alpha, beta, count, *, device):
        return self._next((count,))


class Recorded(torch.utils.data.Dataset):
    """The samples of the three steps, two per step."""

    def __init__(self) -> None:
        self.statistics = {"golden": {"action": {"mean": [0.0]}}}
        self.tensors, _ = recorded()
        with safe_open(DATA / "full_joint_state.safetensors", "pt") as file:
            self.prompts = json.loads(file.metadata()["prompts"])

    def __len__(self) -> int:
        return 2 * STEPS

    def set_epoch(self, epoch: int) -> None:
        pass

    def __getitem__(self, index: int) -> dict[str, Any]:
        step, row = divmod(index, 2)
        sample = {
            key: self.tensors[f"step{step}.in.{key}"][row] for key in ("images", "action", "action_mask", "state")
        }
        return sample | {"lang": self.prompts[row], "sample_id": f"golden/{step}/{row}"}


def build(config: Config, backend: Any) -> torch.nn.Module:
    model = build_dit4dit(config, backend)
    with safe_open(DATA / "full_action_model_sd.safetensors", "pt") as file:
        weights = {key.removeprefix("action_model."): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    model.action_model.load_state_dict(weights)
    return model


def build_dataset(config: Config, video_ctx: Any, split: str) -> Recorded:
    return Recorded()


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    stacked = {key: torch.stack([s[key] for s in samples]) for key in PARTS}
    return stacked | {"lang": [s["lang"] for s in samples], "sample_ids": [s["sample_id"] for s in samples]}


_HERE = "tests.train.golden"
entry = ModelEntry(
    "dit4dit",
    DiT4DiTConfig,
    build=f"{_HERE}:build",
    dataset=f"{_HERE}:build_dataset",
    collate=f"{_HERE}:collate",
    export_checkpoint="vla_dit4dit.checkpoint:export_checkpoint",
)


def config(root: Path, strategy: str, batch_size: int) -> Config:
    """The settings of the recorded run."""
    model = DiT4DiTConfig(
        backbone=BackboneConfig(
            path=str(DATA / "tiny_pipe"),
            extract_layer=2,
            max_sequence_length=192,
            flow_matching=FlowMatchingConfig(high_sigma_ratio=0.5),
        ),
        # Upstream ran in evaluation mode, which is what no dropout means.
        action_head=ActionHeadConfig(
            size="DiT-T", hidden_size=40, max_seq_len=64, num_layers=4, output_dim=40, dropout=0.0
        ),
    )
    data = DataConfig(batch_size=batch_size, num_workers=0, video_delta_indices=[0, 2, 4, 6, 8])
    made = Config(backend="cpu", model=model, data=data)
    made.run.root, made.run.id = str(root), "golden"
    made.train.max_steps, made.train.warmup_steps = 10, 2
    made.train.learning_rate = {"base": 1e-5, "backbone_interface": 1e-5, "action_model": 1e-4}
    made.train.scheduler = SchedulerConfig("cosine_with_min_lr", min_lr=5e-7, floor="base")
    made.train.optimizer = OptimizerConfig(weight_decay=1e-8)
    made.parallel.mixed_precision, made.parallel.strategy = "fp32", strategy
    return made


class Keep:
    """A logger that remembers."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def log(self, record: Any) -> None:
        self.records.append(dict(record))

    def close(self) -> None:
        pass


def replay(folder: Path, rank: int, strategy: str, batch_size: int) -> dict[str, Any]:
    """Three recorded steps, a checkpoint, a prediction, one more step, an export."""
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(local_rank())
    settings = config(folder, strategy, batch_size)
    world = join(backend, 120, alone_too=True)
    parts = set_up(settings, entry, backend, world)
    parts.model.draws = SharedDraws(Recorded().tensors, world.rank, world.world_size)
    trainer, keep = Trainer(parts), Keep()
    trainer.loggers.append(keep)
    for _ in range(STEPS):
        trainer.one_step(log=True)
    checkpoint = trainer.save()
    actions = predict(parts)
    trainer.one_step(log=True)
    if rank == 0:
        from vla_train.config import save_config

        save_config(settings, parts.folder / "config.yaml")
        export(settings, entry, backend, parts.folder, checkpoint, folder / "exported")
    world.barrier()
    return {
        "records": keep.records,
        "actions": actions,
        "checkpoint": str(checkpoint),
        "sharded_at_birth": is_deepspeed_zero3_enabled(),
    }


def predict(parts: Parts) -> list[float]:
    """Actions for the first recorded sample, the same on every rank."""
    batch = parts.backend.to_device(collate([Recorded()[0]]))
    with parts.backend.evaluating(parts.model):
        actions = parts.model.predict_action(batch, generator=torch.Generator().manual_seed(1))
    return actions.flatten().tolist()
