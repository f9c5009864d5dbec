"""Where numbers go: metrics.jsonl, TensorBoard, Weights & Biases, and the progress bar. Rank 0 only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from vla_train.config.schema import RunConfig
from vla_train.train.errors import TrainError

METRICS = "metrics.jsonl"
KNOWN = ("jsonl", "tensorboard", "wandb")
Record = Mapping[str, Any]


class Logger(Protocol):
    """Takes one record per logging step: `step` and scalars by name."""

    def log(self, record: Record) -> None: ...

    def close(self) -> None: ...


def build_loggers(run: RunConfig, folder: Path, *, resumed_at: int, config: Mapping[str, Any]) -> list[Logger]:
    """The loggers named in `run.loggers`.

    Args:
        folder: of the run.
        resumed_at: steps already done; later records of an interrupted attempt are dropped.
        config: the effective configuration, for services that keep it.

    Raises:
        TrainError: an unknown logger, or one whose package is not installed.
    """
    loggers: list[Logger] = []
    for name in run.loggers:
        if name == "jsonl":
            loggers.append(JsonLines(folder / METRICS, resumed_at))
        elif name == "tensorboard":
            loggers.append(TensorBoard(folder / "tb", resumed_at))
        elif name == "wandb":
            loggers.append(Wandb(run, folder, config))
        else:
            raise TrainError(f"run.loggers has '{name}'.", fix=f"use any of {', '.join(KNOWN)}")
    return loggers


class JsonLines:
    """One JSON object per line; a run that is continued keeps the lines up to the step it continues from."""

    def __init__(self, path: Path, resumed_at: int) -> None:
        kept = [line for line in _lines(path) if json.loads(line).get("step", 0) <= resumed_at] if resumed_at else []
        draft = path.with_suffix(".tmp")
        draft.write_text("".join(kept))
        os.replace(draft, path)
        self._file = path.open("a", buffering=1)

    def log(self, record: Record) -> None:
        self._file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        self._file.close()


def _lines(path: Path) -> list[str]:
    """Complete lines; one cut short by a crash is dropped."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("}\n")]


class TensorBoard:
    def __init__(self, folder: Path, resumed_at: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise TrainError(
                "run.loggers has 'tensorboard', which is not installed.",
                why=str(error),
                fix="`pip install tensorboard`, or remove it from run.loggers",
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=resumed_at + 1)

    def log(self, record: Record) -> None:
        for name, value in record.items():
            if name != "step" and isinstance(value, (int, float)):
                self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class Wandb:
    def __init__(self, run: RunConfig, folder: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise TrainError(
                "run.loggers has 'wandb', which is not installed.",
                why=str(error),
                fix="`pip install 'vla-backend[wandb]'`, or remove it from run.loggers",
            ) from error
        self._run = wandb.init(
            project=run.wandb_project,
            entity=run.wandb_entity,
            name=run.id,
            id=run.id,
            resume="allow",
            dir=str(folder),
            config=dict(config),
        )

    def log(self, record: Record) -> None:
        self._run.log({k: v for k, v in record.items() if k != "step"}, step=record["step"])

    def close(self) -> None:
        self._run.finish()


class Progress:
    """A progress bar with loss, rate and samples per second; without a terminal one line per logging step."""

    def __init__(self, total: int, done: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=total, initial=done, unit="step", dynamic_ncols=True, disable=not sys.stderr.isatty())
        self._total = total

    def advance(self) -> None:
        self._bar.update()

    def show(self, record: Record) -> None:
        text = f"loss {record['total_loss']:.4f}, lr {record['learning_rate']:.2e}"
        text += f", {record['samples_per_second']:.1f} samples/s"
        if self._bar.disable:
            self.say(f"step {record['step']}/{self._total}: {text}, {_clock(record['seconds_left'])} left")
        else:
            self._bar.set_postfix_str(text)

    def say(self, message: str) -> None:
        """Print a line without breaking the bar."""
        self._bar.write(message, file=sys.stderr)

    def close(self) -> None:
        self._bar.close()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
