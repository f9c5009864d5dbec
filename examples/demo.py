"""The main job on a laptop: train a small DiT4DiT on 50 recorded episodes, evaluate it, show where the plots are.

    python -m examples.demo                     # or: make demo
    python -m examples.demo --backend cuda      # the same job on another chip

A second call continues an interrupted run and skips what is done; delete runs/demo to start anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples" / "demo.yaml"
RUN = ROOT / "runs" / "demo"
PIPELINE = ROOT / "runs" / "tiny_cosmos"
#: What the demo promises: at most this share of the error of always predicting the mean action.
BOUND = 1 / 3


def main() -> int:
    """Run the demo; answers 0 if the promise is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="cpu", help="see `vla backends` (default: cpu)")
    backend = parser.parse_args().backend
    if not (PIPELINE / "model_index.json").exists():
        step("Build a small random Cosmos-Predict2.5 pipeline")
        run("-m", "vla_dit4dit.tiny", str(PIPELINE), "--width", "128", "--layers", "3")
    step("Train")
    run("-m", "vla_train.cli", "train", "--backend", backend, "--config", str(CONFIG))
    step("Evaluate on held-out episodes")
    run("-m", "vla_train.cli", "eval", "--backend", backend, "--run", str(RUN))
    return conclude()


def conclude() -> int:
    """Say what came out and where to look."""
    report = max((RUN / "plots").glob("eval_step_*.json"), key=lambda path: path.stat().st_mtime)
    result = json.loads(report.read_text())
    # The mean over the dimensions that vary, which a policy that ignores the images does not bring below the bound.
    error = result["normalised_error"]
    kept = error <= BOUND
    step("Result")
    print(f"open-loop error on held-out episodes: {error:.3f} of always predicting the mean action", end=" ")
    print(f"({'at most' if kept else 'NOT at most'} {BOUND:.3f}, as promised; mean over action dimensions)")
    print(f"  numbers  {shown(report)}")
    for picture in sorted((RUN / "plots").glob("*.png")):
        print(f"  plot     {shown(picture)}")
    return 0 if kept else 1


def shown(path: Path) -> Path:
    """A path as short as it can be from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def step(title: str) -> None:
    """A heading between the commands' outputs."""
    print(f"\n== {title}", flush=True)


def run(*arguments: str) -> None:
    """Run Python in the repository's root; a failure ends the demo with its exit code."""
    code = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False).returncode
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
