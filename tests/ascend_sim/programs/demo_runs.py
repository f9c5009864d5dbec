"""Short runs of the demo's configuration, one after another, on the backend and the ranks that the environment names.

`NAME[@OTHER][:key=value,...]` makes the run NAME, from the first checkpoint of OTHER if that is given; keys: `steps`,
`save`, `eval`, `strategy`, `precision`, `draws` (host or device), `fused` and `islands` (on or off: record the dtypes
of the first forward pass, `off` with float32 regions that do nothing). A run leaves `NAME/run/` and, for every rank,
the actions of its last weights in `NAME/actions-RANK.json`, the processor time of a step in `NAME/seconds-RANK.json`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from vla_backend import activate, choose

backend = activate(choose())
backend.load_stack()  # before anything else that imports torch

import torch  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from vla_dit4dit import entry as dit4dit  # noqa: E402
from vla_dit4dit.model import build as build_dit4dit  # noqa: E402
from vla_train.config import Config, load_config  # noqa: E402
from vla_train.nn import Draws  # noqa: E402
from vla_train.train.run import local_rank, run  # noqa: E402
from vla_train.train.setup import Parts  # noqa: E402
from vla_train.train.world import join  # noqa: E402

ROOT = Path(__file__).parents[3]
PIPELINE = ROOT / "tests" / "data" / "dit4dit" / "tiny_pipe"
SETTINGS = f"""
data.root={ROOT}/examples/data data.batch_size=2 data.num_workers=0 eval.batch_size=8 eval.episodes=1
model.backbone.path={PIPELINE} model.backbone.extract_layer=2 model.backbone.max_sequence_length=192
model.repeated_diffusion_steps=2 model.action_head.num_attention_heads=2 model.action_head.attention_head_dim=16
model.action_head.num_layers=2 model.action_head.output_dim=32 model.action_head.hidden_size=64
train.warmup_steps=2 train.log_interval=1 run.loggers=[jsonl] run.id=run
""".split()


class HostDraws(Draws):
    """Every number from the host's generator, so that devices with generators of their own see the same."""

    def _drawn_on(self, device: torch.device | str) -> torch.device | str:
        return "cpu"

    def randn_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.randn(tensor.shape, device=tensor.device, dtype=tensor.dtype)


def build(config: Config, backend: Any) -> torch.nn.Module:
    model = build_dit4dit(config, backend)
    if DRAWS == "host":
        model.draws = HostDraws()
    return model


def actions(parts: Parts) -> list[float]:
    """Predicted for the first two training samples."""
    dataset = parts.entry.call("dataset")(parts.config, parts.backend.video_ctx, "train")
    batch = parts.backend.to_device(parts.entry.call("collate")([dataset[0], dataset[1]]))
    with parts.backend.evaluating(parts.model):
        predicted = parts.model.predict_action(batch, generator=torch.Generator().manual_seed(1))
    return predicted.flatten().tolist()


class Dtypes(TorchDispatchMode):
    """Counts `operator dtypes-of-its-tensors` within and without the regions that must be float32."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Counter[str]] = {"inside": Counter(), "outside": Counter()}
        self.depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        floats = {str(t.dtype) for t in args if isinstance(t, torch.Tensor) and t.is_floating_point()}
        if floats:
            place = "inside" if self.depth else "outside"
            self.found[place][f"{func.overloadpacket.__name__} {' '.join(sorted(floats))}"] += 1
        return func(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def region(self, real: Any) -> Iterator[None]:
        self.depth += 1
        try:
            with real:
                yield
        finally:
            self.depth -= 1


def record(parts: Parts, islands: str, file: Path) -> None:
    """Let the first forward pass write the dtypes it computes in."""
    real_region, real_forward, dtypes = backend.fp32_region, parts.model.forward, Dtypes()

    def region() -> contextlib.AbstractContextManager[None]:
        return dtypes.region(real_region() if islands == "on" else contextlib.nullcontext())

    def forward(batch: Any) -> Any:
        backend.fp32_region = region
        try:
            with dtypes:
                return real_forward(batch)
        finally:
            parts.model.forward = real_forward
            del backend.fp32_region
            file.write_text(json.dumps(dtypes.found))

    parts.model.forward = forward


def prepare(kept: list[Parts], islands: str, folder: Path, parts: Parts) -> None:
    kept.append(parts)
    if islands:
        record(parts, islands, folder / "dtypes.json")


def copy_run(source: Path, target: Path) -> None:
    """A run as it was at its first checkpoint."""
    if world.is_main:
        shutil.copytree(source, target, symlinks=True)
        first, *later = sorted((target / "run" / "checkpoints").glob("step_*"))
        for folder in later:
            shutil.rmtree(folder)
        latest = target / "run" / "checkpoints" / "latest"
        latest.unlink()
        latest.symlink_to(first.name)
    world.barrier()


ticks: list[float] = []
register_optimizer_step_post_hook(lambda *_: ticks.append(time.process_time()))
backend.local_device(local_rank())
world = join(backend, 120, alone_too=True)
entry = replace(dit4dit, build=f"{__name__}:build")
for argument in sys.argv[1:]:
    names, _, rest = argument.partition(":")
    name, _, other = names.partition("@")
    folder = Path.cwd() / name
    wanted = {
        "steps": "20",
        "save": "10",
        "eval": "0",
        "strategy": "ddp",
        "precision": "fp32",
        "draws": "host",
        "fused": "true",
    }
    wanted |= dict(part.split("=") for part in rest.split(",") if part)
    DRAWS = wanted["draws"]
    if other:
        copy_run(Path.cwd() / other, folder)
    overrides = [
        *SETTINGS,
        f"run.root={folder}",
        f"train.max_steps={wanted['steps']}",
        f"train.save_interval={wanted['save']}",
        f"train.eval_interval={wanted['eval']}",
        f"train.fused_kernels={wanted['fused']}",
        f"parallel.strategy={wanted['strategy']}",
        f"parallel.mixed_precision={wanted['precision']}",
        f"parallel.processes={world.world_size}",
    ]
    config, _ = load_config([str(ROOT / "examples" / "demo.yaml")], overrides)
    kept: list[Parts] = []
    ticks.clear()
    run(config, entry, backend, prepared=partial(prepare, kept, wanted.get("islands", ""), folder))
    seconds = [after - before for before, after in pairwise(ticks)]
    (folder / f"seconds-{world.rank}.json").write_text(json.dumps(median(seconds) if seconds else None))
    (folder / f"actions-{world.rank}.json").write_text(json.dumps(actions(kept[0])))
