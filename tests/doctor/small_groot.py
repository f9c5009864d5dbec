"""A GR00T small enough for seconds on recorded episodes."""

from __future__ import annotations

from pathlib import Path

from vla_backend import Backend
from vla_train import models
from vla_train.config import Config, load_config

LIBERO = Path(__file__).parents[1] / "data" / "lerobot" / "tiny_libero"
BASE = "base"
entry = models.find("groot")


def write_base(root: Path, backend: Backend) -> None:
    """The checkpoint that `config` starts from."""
    from vla_groot import tiny

    if not (root / BASE / "config.json").exists():
        tiny.save(root / BASE, backend)


def config(
    root: Path,
    strategy: str = "ddp",
    precision: str = "fp32",
    processes: int = 1,
    *settings: str,
    base: Path | None = None,
) -> Config:
    """A run below `root`, from the checkpoint there or in `base`."""
    made = [
        f"model.base_model={(base or root) / BASE}",
        f"data.datasets=[{{path: {LIBERO}, robot: new_embodiment}}]",
        f"run.root={root}",
        "run.loggers=[]",
        "data.num_workers=0",
        "data.batch_size=8",
        "model.action_steps=8",
        "model.sampling.shard_size=8",
        "model.sampling.shards_per_epoch=4",
        "train.max_steps=10",
        "train.save_interval=0",
        f"parallel.strategy={strategy}",
        f"parallel.mixed_precision={precision}",
        f"parallel.processes={processes}",
    ]
    if strategy != "ddp":
        # In proportion to the model; the usual ones are as large as a hundred of it.
        made.append(
            "parallel.deepspeed={zero_optimization: {reduce_bucket_size: 500000, allgather_bucket_size: 500000}}"
        )
    return load_config([], [*made, *settings], "groot")[0]
