"""The main job on a laptop: train a small DiT4DiT on 50 recorded episodes, evaluate it, show where the plots are.

    python -m examples.demo                     # or: make demo
    python -m examples.demo --backend cuda      # the same job on another chip

A second call continues an interrupted run and skips what is done; delete runs/demo to start anew. The other
demonstration, `examples/demo_groot.py`, goes through the same steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Demo:
    """A job and what it promises.

    Attributes:
        summary: what it does, for `--help`.
        config: file in `examples/`.
        run: folder of the run, as the configuration says.
        weights: file below the root that tells that the random weights to start from are there.
        build: arguments of Python that write them.
        bound: the promise: at most this share of the error of always predicting the mean action.
        gain: and at most this share of the error before training; 0 does not evaluate before training.
    """

    summary: str
    config: str
    run: Path
    weights: Path
    build: tuple[str, ...]
    bound: float
    gain: float = 0.0

    @property
    def untrained(self) -> Path:
        """Folder of the run that trains nothing."""
        return self.run.with_name(f"{self.run.name}_untrained")


DIT4DIT = Demo(
    summary=__doc__.splitlines()[0],
    config="demo.yaml",
    run=ROOT / "runs" / "demo",
    weights=ROOT / "runs" / "tiny_cosmos" / "model_index.json",
    build=("-m", "vla_dit4dit.tiny", "runs/tiny_cosmos", "--width", "128", "--layers", "3"),
    bound=1 / 3,
)


def main(demo: Demo = DIT4DIT) -> int:
    """Run a demo; answers 0 if the promise is kept."""
    parser = argparse.ArgumentParser(description=demo.summary)
    parser.add_argument("--backend", default="cpu", help="see `vla backends` (default: cpu)")
    backend = parser.parse_args().backend
    if not demo.weights.exists():
        step("Build a small model with random weights")
        run(*demo.build)
    if demo.gain:
        step("Evaluate before training")
        # One step of length zero makes a checkpoint of the weights as they are.
        nothing = (f"run.id={demo.untrained.name}", "train.max_steps=1", "train.learning_rate.base=0")
        vla("train", backend, "--config", f"examples/{demo.config}", *nothing)
        vla("eval", backend, "--run", str(demo.untrained))
    step("Train")
    vla("train", backend, "--config", f"examples/{demo.config}")
    step("Evaluate on held-out episodes")
    vla("eval", backend, "--run", str(demo.run))
    return conclude(demo)


def conclude(demo: Demo) -> int:
    """Say what came out and where to look; answers 0 if the promise is kept."""
    report = newest_report(demo.run)
    error = normalised_error(report)
    step("Result")
    print("open-loop error on held-out episodes, mean over the action dimensions that vary:")
    kept = promise(error, demo.bound, "of always predicting the mean action")
    if demo.gain:
        before = normalised_error(newest_report(demo.untrained))
        kept &= promise(error / before, demo.gain, "of the error before training")
    print(f"  numbers  {shown(report)}")
    for picture in sorted((demo.run / "plots").glob("*.png")):
        print(f"  plot     {shown(picture)}")
    return 0 if kept else 1


def promise(share: float, bound: float, what: str) -> bool:
    """Whether `share` is within its bound, and say so; an error that is not a number is not."""
    kept = share <= bound
    print(f"  {share:.3f} {what} ({'at most' if kept else 'NOT at most'} {bound:.3f}, as promised)")
    return kept


def newest_report(run_folder: Path) -> Path:
    """The last evaluation of a run."""
    return max((run_folder / "plots").glob("eval_step_*.json"), key=lambda path: path.stat().st_mtime)


def normalised_error(report: Path) -> float:
    """The mean over the dimensions that vary, which a policy that ignores the images does not bring below a bound."""
    content: dict[str, Any] = json.loads(report.read_text())
    return float(content["normalised_error"])


def shown(path: Path) -> Path:
    """A path as short as it can be from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def step(title: str) -> None:
    """A heading between the commands' outputs."""
    print(f"\n== {title}", flush=True)


def vla(command: str, backend: str, *arguments: str) -> None:
    """Run a `vla` command as a user does."""
    run("-m", "vla_train.cli", command, "--backend", backend, *arguments)


def run(*arguments: str) -> None:
    """Run Python in the repository's root; a failure ends the demo with its exit code."""
    code = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False).returncode
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
