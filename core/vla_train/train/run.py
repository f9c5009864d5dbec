"""One rank of a training job, from the device to the summary line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from vla_backend import Backend
from vla_train.checkpoint.resume import find
from vla_train.config import save_config
from vla_train.config.schema import Config
from vla_train.evaluate import during_training, predicts_actions
from vla_train.models import ModelEntry
from vla_train.train.curves import plot_losses
from vla_train.train.deepspeed_config import STAGES
from vla_train.train.loggers import METRICS
from vla_train.train.loop import Evaluate, Outcome, Trainer
from vla_train.train.setup import Parts, set_up
from vla_train.train.world import World, join, leave


def run(
    config: Config,
    entry: ModelEntry,
    backend: Backend,
    *,
    evaluate: Evaluate | None = None,
    prepared: Callable[[Parts], None] = lambda _: None,
) -> Outcome:
    """Train in this process, as the rank that RANK, LOCAL_RANK and WORLD_SIZE in the environment name.

    A process group that exists already is used and left alone.

    Args:
        config: complete and checked.
        entry: the model.
        backend: activated; any phase.
        evaluate: see `Trainer`; by default open-loop evaluation of held-out episodes.
        prepared: called with everything that was set up, before the first step.

    Raises:
        BackendError: what cannot work or went wrong, with the remedy.
    """
    backend.load_stack()
    backend.local_device(local_rank())
    patches = backend.apply_patches()
    joined = not torch.distributed.is_initialized()
    world = join(backend, config.parallel.dist_timeout, alone_too=config.parallel.strategy in STAGES)
    try:
        folder = Path(config.run.root) / config.run.id
        say = _printer(world)
        for patch in patches:
            say(f"patch {patch.name}: {'applied' if patch.applied else 'not applied'}, {patch.detail}")
        if world.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "config.yaml").exists():
                save_config(config, folder / "config.yaml")
        found = find(folder, config.train.resume, world, say)
        position = found.position() if found else None
        parts = set_up(config, entry, backend, world, start_position=position, patches=patches, say=say)
        prepared(parts)
        if evaluate is None and config.train.eval_interval:
            evaluate = _held_out(config, parts, say)
        outcome = Trainer(parts, evaluate, found).run()
        if world.is_main:
            say(summary(outcome, folder))
        return outcome
    finally:
        if joined:
            leave()


def local_rank() -> int:
    """Rank on this machine, as the launcher says."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def _held_out(config: Config, parts: Parts, say: Callable[[str], None]) -> Evaluate | None:
    if not config.data.holdout_episodes:
        reason = "data.holdout_episodes is 0: there is nothing to evaluate on"
    elif not predicts_actions(parts.model):
        reason = "the model predicts no actions"
    else:
        return during_training()
    say(f"warning: train.eval_interval has no effect because {reason}")
    return None


def _printer(world: World) -> Callable[[str], None]:
    def say(message: str) -> None:
        if world.is_main:
            print(message, flush=True)

    return say


def summary(outcome: Outcome, folder: Path) -> str:
    """Draw the losses and say how the run ended and where everything is."""
    ended = f"stopped by {outcome.interrupted}" if outcome.interrupted else "done"
    lines = [f"{ended} at step {outcome.step}" + (f", loss {outcome.loss:.4f}" if outcome.loss is not None else "")]
    lines.append(f"  checkpoint  {outcome.checkpoint}")
    if plot_losses(folder / METRICS, folder / "plots" / "loss.png"):
        lines.append(f"  metrics     {folder / METRICS}, {folder / 'plots' / 'loss.png'}")
    if outcome.interrupted:
        lines.append("  the same command continues the run")
    return "\n".join(lines)
