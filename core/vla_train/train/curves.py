"""Picture of the losses of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

LOSS: Final = "_loss"


def plot_losses(metrics: Path, target: Path) -> bool:
    """Draw every `*_loss` of a metrics.jsonl over steps, with the learning rate below; false if there is none."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not metrics.is_file():
        return False
    records: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text().splitlines()]
    names = sorted({name for record in records for name in record if name.endswith(LOSS)})
    if not names:
        return False
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    losses, rates = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for name in names:
        points = [(record["step"], record[name]) for record in records if name in record]
        steps, values = zip(*points, strict=True)
        losses.plot(steps, values, label=name.removesuffix(LOSS), linewidth=2 if name == f"total{LOSS}" else 1)
    if all(line.get_ydata().min() > 0 for line in losses.get_lines()):
        losses.set_yscale("log")
    losses.set_ylabel("loss")
    losses.legend()
    losses.grid(alpha=0.3)
    for name in sorted({name for record in records for name in record if name.startswith("learning_rate/")}):
        points = [(record["step"], record[name]) for record in records if name in record]
        rates.plot(*zip(*points, strict=True), label=name.partition("/")[2])
    rates.set_ylabel("learning rate")
    rates.set_xlabel("step")
    rates.legend(fontsize="small")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    return True
