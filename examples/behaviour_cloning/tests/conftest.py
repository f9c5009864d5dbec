from __future__ import annotations

from pathlib import Path

import pytest

from vla_behaviour_cloning.config import BehaviourCloningConfig
from vla_train.config import Config
from vla_train.data.config import DataConfig, DatasetConfig

pytest_plugins = ["vla_backend.testing"]


@pytest.fixture
def config(tiny_lerobot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A short run of a small model on the tiny dataset."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = DataConfig(
        root=str(tiny_lerobot.parent),
        datasets=[DatasetConfig(tiny_lerobot.name)],
        max_state_dim=3,
        max_action_dim=3,
        image_size=[32, 32],
        batch_size=4,
        num_workers=0,
        holdout_episodes=1,
    )
    made = Config(model=BehaviourCloningConfig(width=32, heads=2, layers=1, action_horizon=4), data=data)
    made.run.root, made.run.loggers = str(tmp_path / "runs"), ["jsonl"]
    made.train.max_steps, made.train.log_interval, made.train.learning_rate = 32, 1, {"base": 1e-3}
    made.train.scheduler.name = "constant_with_warmup"
    made.parallel.mixed_precision = "fp32"
    return made
