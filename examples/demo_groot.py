"""GR00T N1.7 on a laptop: fine-tune a small random one on 50 recorded episodes and compare it with before.

    python -m examples.demo_groot                     # or: make demo-groot
    python -m examples.demo_groot --backend cuda      # the same job on another chip

A second call continues an interrupted run and skips what is done; delete runs/demo_groot to start anew.
"""

from __future__ import annotations

import sys

from examples.demo import ROOT, Demo, main

GROOT = Demo(
    summary=__doc__.splitlines()[0],
    config="demo_groot.yaml",
    run=ROOT / "runs" / "demo_groot",
    weights=ROOT / "runs" / "tiny_groot" / "config.json",
    build=("-m", "vla_groot.tiny", "runs/tiny_groot"),
    bound=0.45,
    gain=0.3,
)

if __name__ == "__main__":
    sys.exit(main(GROOT))
