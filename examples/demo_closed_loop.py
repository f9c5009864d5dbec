"""The demo's model presses buttons: train it if need be, let it act in Meta-World, beside itself without sight.

    python -m examples.demo_closed_loop                     # or: make demo-closed-loop
    python -m examples.demo_closed_loop --model groot       # GR00T N1.7 instead of DiT4DiT
    python -m examples.demo_closed_loop --backend cuda      # the same job on another chip

Needs the simulator (`pip install -e '.[sim]'`) and libEGL or libOSMesa. It continues or reuses the run of
`examples/demo.py`, runs/demo, or that of `examples/demo_groot.py`, runs/demo_groot.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from examples.demo import DIT4DIT, run, shown, step, vla
from examples.demo_groot import GROOT
from vla_train.closed_loop.environments import find

DEMOS = {"dit4dit": DIT4DIT, "groot": GROOT}
ENVIRONMENT = "metaworld:button-press-topdown-v3"
EPISODES = 20
#: The promise: so many of them solved, and a difference from black images that is no chance.
SOLVED = 16
P_VALUE = 0.05


def main() -> int:
    """Run the demo; answers 0 if the promise is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="cpu", help="see `vla backends` (default: cpu)")
    parser.add_argument("--model", choices=sorted(DEMOS), default="dit4dit", help="default: dit4dit")
    arguments = parser.parse_args()
    backend, demo = arguments.backend, DEMOS[arguments.model]
    # What is not installed is said before minutes of training.
    find(ENVIRONMENT)[0].check()
    if not demo.weights.exists():
        step("Build a small model with random weights")
        run(*demo.build)
    step("Train")
    vla("train", backend, "--config", f"examples/{demo.config}")
    step(f"Press {EPISODES} buttons, at places that were not recorded")
    vla("eval", backend, "--run", str(demo.run), "--env", ENVIRONMENT, "--episodes", str(EPISODES))
    return conclude(newest(demo.run / "closed_loop"))


def newest(folder: Path) -> Path:
    """The last evaluation's report."""
    return max(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)


def conclude(report: Path) -> int:
    """Say what came out and where to look; answers 0 if the promise is kept."""
    content: dict[str, Any] = json.loads(report.read_text())
    ((name, p_value),) = content["p_values"].items()
    model, blind = content["policies"]["model"], content["policies"][name]
    enough = model["successes"] >= SOLVED
    clear = model["rate"] > blind["rate"] and p_value < P_VALUE
    step("Result")
    print(
        f"{model['successes']} of {model['episodes']} buttons pressed "
        f"({'at least' if enough else 'NOT at least'} {SOLVED}, as promised), {blind['successes']} with {name} "
        f"({'clearly' if clear else 'NOT clearly'} fewer, p = {p_value:.2g})"
    )
    print(f"  numbers  {shown(report)}")
    if content["videos"]:
        print(f"  videos   {shown(Path(content['videos']))}")
    return 0 if enough and clear else 1


if __name__ == "__main__":
    sys.exit(main())
