"""Evaluation of a checkpoint, `python -m vla_train.evaluate CONFIG.yaml --run FOLDER --checkpoint FOLDER`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_backend import Backend, activate, choose
from vla_backend.errors import BackendError
from vla_train import models
from vla_train.config import Config, load_config
from vla_train.launch.failure import guard
from vla_train.models import ModelEntry
from vla_train.worker import translated

if TYPE_CHECKING:
    from vla_train.action_errors import OpenLoopReport
    from vla_train.train.setup import Parts
    from vla_train.train.world import World


#: What the splits of a dataset are called in a report.
SPLITS = {"eval": "held-out", "train": "training", "all": "recorded"}


def main(argv: list[str] | None = None) -> int:
    """Evaluate a checkpoint, print the table, write JSON and PNG below the run's `plots/`."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.evaluate", description=__doc__)
    parser.add_argument("config", help="complete configuration")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--split", choices=sorted(SPLITS), default="eval", help="which episodes (default: held out)")
    arguments = parser.parse_args(argv)
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    try:
        backend.load_stack()
        backend.local_device(0)
        report = evaluate_checkpoint(config, entry, backend, arguments.checkpoint, arguments.split, arguments.run)
        name = arguments.checkpoint.name + ("" if arguments.split == "eval" else f"_{arguments.split}")
        written = write(report, arguments.run, name, checkpoint=str(arguments.checkpoint))
    except Exception as error:
        raise translated(error, backend) from error
    print(report.table())
    for path in written:
        print(f"  wrote {path}")
    return 0


def evaluate_checkpoint(
    config: Config, entry: ModelEntry, backend: Backend, checkpoint: Path, split: str = "eval", run: Path | None = None
) -> OpenLoopReport:
    """The open-loop errors of the weights in `checkpoint` on the held-out episodes, or on another split.

    Raises:
        BackendError: the checkpoint does not fit the configuration, the data is not what `run` was trained on, or there
            is no held-out data.
    """
    from vla_train.checkpoint.load import load_model
    from vla_train.trained_on import check_statistics

    backend.matmul_precision(config.train.matmul_precision)
    model = load_model(config, entry, backend, checkpoint).to(backend.device)
    if not predicts_actions(model):
        raise BackendError(
            "This model predicts no actions, so there is no open-loop error.",
            why=f"model.name={config.model.name} was configured without an action head",
            fix="evaluate a run whose mode has one",
        )
    dataset = entry.call("dataset")(config, backend.video_ctx, split)
    if run is not None:
        check_statistics(run, dataset)
    return evaluate_model(config, entry, backend, model, dataset=dataset, split=split)


def predicts_actions(model: Any) -> bool:
    """Whether the model can be evaluated; a model may say no in its attribute of the same name."""
    return bool(getattr(model, "predicts_actions", True))


def evaluate_model(
    config: Config,
    entry: ModelEntry,
    backend: Backend,
    model: Any,
    world: World | None = None,
    dataset: Any = None,
    split: str = "eval",
) -> OpenLoopReport:
    """The open-loop errors of `model`, on its device, on the episodes of a split; `dataset` reuses an open one."""
    from vla_train.open_loop import evaluate_open_loop

    dataset = dataset or entry.call("dataset")(config, backend.video_ctx, split)
    return evaluate_open_loop(
        model,
        dataset,
        backend,
        collate=entry.call("collate"),
        # A model that pads chunks to a common length predicts fewer real steps than it answers.
        horizon=getattr(dataset, "action_horizon", 0) or len(dataset[0]["action"]),
        dtype=backend.compute_dtype(config.parallel.mixed_precision),
        episodes=config.eval.episodes,
        batch_size=config.eval.batch_size,
        seed=config.eval.seed,
        world=world,
        split=SPLITS[split],
    )


def during_training() -> Callable[[Parts, int], Mapping[str, float]]:
    """What `Trainer` calls every `train.eval_interval` steps: evaluates, writes JSON and PNG, answers scalars.

    Training goes on with the random numbers it would have drawn without the evaluation.
    """
    opened: list[Any] = []

    def evaluate(parts: Parts, step: int) -> Mapping[str, float]:
        from vla_train.checkpoint.layout import step_name

        config, backend = parts.config, parts.backend
        if not opened:
            opened.append(parts.entry.call("dataset")(config, backend.video_ctx, "eval"))
        state = backend.rng_state()
        try:
            report = evaluate_model(config, parts.entry, backend, parts.model, parts.world, opened[0])
        finally:
            backend.set_rng_state(state)
        if parts.world.is_main:
            write(report, parts.folder, step_name(step), step=step)
        return report.scalars()

    return evaluate


def write(report: OpenLoopReport, run: Path, name: str, **extra: Any) -> list[Path]:
    """Writes `plots/eval_<name>.json` and pictures of the first two episodes of each robot; answers the files."""
    from vla_train.plots import plot_report

    folder = run / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    summary = folder / f"eval_{name}.json"
    report.write_json(summary, **extra)
    return [summary, *plot_report(report, folder, f"eval_{name}", episodes=2)]


if __name__ == "__main__":
    sys.exit(guard(main))
