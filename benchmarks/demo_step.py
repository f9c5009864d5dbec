"""One training step of the demo, through the engine: batch, move, forward, backward, clip, update, schedule."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path

from vla_backend import Backend
from vla_train.config import load_config
from vla_train.models import find
from vla_train.train.loop import Trainer
from vla_train.train.setup import set_up
from vla_train.train.world import join

ROOT = Path(__file__).parents[1]


class DemoStep:
    """The demo's model on its data; every call is one optimizer step.

    Args:
        backend: device-ready.
    """

    def __init__(self, backend: Backend) -> None:
        from vla_dit4dit.tiny import TinySpec, save

        folder = tempfile.TemporaryDirectory(prefix="vla-bench-")
        atexit.register(folder.cleanup)
        pipeline = Path(folder.name) / "pipeline"
        save(pipeline, TinySpec(width=128, layers=3))
        config, _ = load_config(
            [str(ROOT / "examples" / "demo.yaml")],
            [
                f"run.root={folder.name}",
                f"model.backbone.path={pipeline}",
                f"data.root={ROOT / 'examples' / 'data'}",
                "data.num_workers=0",
            ],
        )
        world = join(backend, config.parallel.dist_timeout)
        self._trainer = Trainer(set_up(config, find(config.model.name), backend, world))

    def __call__(self) -> None:
        self._trainer.one_step(log=False)
