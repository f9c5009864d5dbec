"""Closed-loop evaluation of a checkpoint; `vla eval --env` starts `python -m vla_train.closed_loop.worker`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_backend import Backend, activate, choose
from vla_backend.errors import BackendError
from vla_train import models
from vla_train.closed_loop.environments import Environment, find
from vla_train.config import Config, load_config
from vla_train.launch.failure import guard
from vla_train.models import ModelEntry
from vla_train.worker import translated

if TYPE_CHECKING:
    from vla_train.closed_loop.success import ClosedLoopReport

#: How the training set was recorded; the recorder writes it.
RECORDING = Path("meta") / "recording.json"
MODEL, BLIND = "model", "black images"


def main(argv: list[str] | None = None) -> int:
    """Evaluate a checkpoint in an environment, print the table, write JSON and videos below the run's folder."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.closed_loop.worker", description=__doc__)
    parser.add_argument("config", help="complete configuration")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--env", required=True, metavar="NAME:TASK")
    parser.add_argument("--env-options", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--execute", type=int, default=0)
    parser.add_argument("--no-videos", action="store_true")
    arguments = parser.parse_args(argv)
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    environment_entry, task = find(arguments.env)
    environment_entry.check()
    try:
        backend.load_stack()
        backend.local_device(0)
        options, note = environment_options(config, environment_entry.name, arguments.env_options)
        print(f"environment options: {json.dumps(options)} ({note})")
        environment = environment_entry.make(task, options)
        folder = arguments.run / "closed_loop" / f"{slug(arguments.env)}_{arguments.checkpoint.name}"
        videos = None if arguments.no_videos else folder
        if videos:
            for old in videos.glob("*.mp4"):  # of an earlier evaluation of this checkpoint
                old.unlink()
        try:
            report = evaluate(
                config,
                entry,
                backend,
                arguments.checkpoint,
                environment,
                name=arguments.env,
                run=arguments.run,
                first_seed=arguments.first_seed,
                execute=arguments.execute,
                videos=videos,
            )
        finally:
            environment.close()
    except Exception as error:
        raise translated(error, backend) from error
    print(report.table())
    summary = folder.with_name(f"{folder.name}.json")
    summary.parent.mkdir(parents=True, exist_ok=True)
    extra = {"checkpoint": str(arguments.checkpoint), "options": options, "noise_seed": config.eval.seed}
    report.write_json(summary, **extra, execute=arguments.execute, videos=videos and str(videos))
    print(f"  wrote {summary}")
    if videos:
        print(f"  wrote {videos}/*.mp4")
    return 0


def evaluate(
    config: Config,
    entry: ModelEntry,
    backend: Backend,
    checkpoint: Path,
    environment: Environment,
    *,
    name: str,
    run: Path | None = None,
    first_seed: int = 0,
    execute: int = 0,
    videos: Path | None = None,
) -> ClosedLoopReport:
    """The success of the weights in `checkpoint`, and of the same weights when they are shown black images.

    `config.eval.episodes` episodes (0: 20) with the seeds `first_seed`, `first_seed` + 1, ...

    Raises:
        BackendError: the checkpoint does not fit the configuration, or the environment does not fit the data.
    """
    from vla_train.checkpoint.load import load_model
    from vla_train.closed_loop.policy import Policy
    from vla_train.closed_loop.rollout import run_episodes
    from vla_train.closed_loop.success import ClosedLoopReport
    from vla_train.evaluate import predicts_actions
    from vla_train.trained_on import check_statistics

    backend.matmul_precision(config.train.matmul_precision)
    model = load_model(config, entry, backend, checkpoint).to(backend.device)
    if not predicts_actions(model):
        raise BackendError("This model predicts no actions.", fix="evaluate a run whose mode has an action head")
    # Only its names and its normalisation are used; training has checked the files.
    config.data.check = "off"
    dataset = entry.call("dataset")(config, backend.video_ctx, "train")
    if run is not None:
        check_statistics(run, dataset)
    dtype = backend.compute_dtype(config.parallel.mixed_precision)
    policy = Policy(model, dataset, entry.call("collate"), backend, dtype)
    seeds = range(first_seed, first_seed + (config.eval.episodes or 20))
    results = {
        label: run_episodes(
            policy,
            environment,
            seeds,
            name=label,
            execute=execute,
            blind=label == BLIND,
            noise_seed=config.eval.seed,
            videos=videos,
        )
        for label in (MODEL, BLIND)
    }
    return ClosedLoopReport(name, results)


def environment_options(config: Config, name: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The options of environment `name`: as the training set was recorded, `given` ones win; and where from."""
    for dataset in config.data.datasets:
        path = Path(config.data.root) / dataset.path / RECORDING
        if path.is_file():
            recording = json.loads(path.read_text(encoding="utf-8"))
            if str(recording.get("environment", "")).partition(":")[0] == name:
                return {**recording["options"], **given}, f"as {path} says" + (", overridden" if given else "")
    return dict(given), f"no training set says in {RECORDING} how it was recorded; other options have defaults"


def slug(spec: str) -> str:
    """A file name from "name:task"."""
    return re.sub(r"[^\w.-]+", "_", spec)


if __name__ == "__main__":
    sys.exit(guard(main))
