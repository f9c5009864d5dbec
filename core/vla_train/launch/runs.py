"""Run folders as the launcher sees them: what is there already, and what may be continued."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

import yaml

from vla_train.checkpoint import layout
from vla_train.config import Config, Problem, plain, save_config
from vla_train.config.files import nearest_path
from vla_train.config.typed import leaves

CONFIG: Final = "config.yaml"
NEXT: Final = "config.next.yaml"


def folder(config: Config) -> Path:
    """`run.root/run.id`."""
    return Path(config.run.root).expanduser() / config.run.id


def config_file(config: Config) -> Path:
    """The file that the ranks read their configuration from.

    A run with checkpoints keeps its `config.yaml` until they have been continued: an attempt that does not fit must not
    leave them with a configuration that they cannot be read with.
    """
    run = folder(config)
    return run / (NEXT if complete_checkpoints(run) and (run / CONFIG).is_file() else CONFIG)


def write_config(config: Config, file: Path) -> None:
    """Write the complete configuration into the run's folder, as `config_file` says."""
    (file.parent / NEXT).unlink(missing_ok=True)
    save_config(config, file, header="The complete configuration of this run; `vla train --config` takes it as it is.")


def adopt_config(run: Path) -> None:
    """The checkpoints of `run` are continued: from here on its configuration is the new one."""
    with contextlib.suppress(FileNotFoundError):
        (run / NEXT).replace(run / CONFIG)


def complete_checkpoints(run: Path) -> list[Path]:
    """Complete checkpoints of a run folder, the newest last; one without a manifest does not count."""
    folders = [run / layout.FOLDER / layout.step_name(step) for step in layout.saved_steps(run / layout.FOLDER)]
    return [path for path in reversed(folders) if (path / layout.MANIFEST).is_file()]


def problems(config: Config) -> list[Problem]:
    """What is wrong about where the run writes and what it continues."""
    run = folder(config)
    found: list[Problem] = []
    if reason := unwritable(run):
        found.append(Problem("run.root", f"{run} cannot be written: {reason}", "set run.root to a folder you own"))
    resume = config.train.resume
    if resume == "never" and (steps := layout.saved_steps(run / layout.FOLDER)):
        message = f"is 'never', but {run} already has checkpoints, the newest of step {steps[0]}"
        found.append(Problem("train.resume", message, "set another run.id, or train.resume=auto to continue"))
    elif resume not in ("auto", "never"):
        path = Path(resume).expanduser()
        if not path.is_dir():
            message = f"is '{resume}', which is neither auto, never nor a checkpoint folder"
            found.append(Problem("train.resume", message, nearest_path(path)))
        elif not (path / layout.MANIFEST).is_file():
            newest = complete_checkpoints(path) or complete_checkpoints(path.parent.parent)
            remedy = f"did you mean {newest[-1]}?" if newest else ""
            found.append(
                Problem("train.resume", f"{path} has no {layout.MANIFEST}: it is no complete checkpoint", remedy)
            )
        else:
            found += _of_another_model(config, path.parent.parent, path)
    elif resume == "auto" and (there := complete_checkpoints(run)):
        found += _of_another_model(config, run, there[-1])
    return found


def _of_another_model(config: Config, run: Path, checkpoint: Path) -> list[Problem]:
    """A checkpoint of another model fits nothing here; what else differs, the model itself finds when it is loaded."""
    name = dict(leaves(_settings(run))).get("model.name", config.model.name)
    if name == config.model.name:
        return []
    message = f"{checkpoint} is of the model '{name}', not of '{config.model.name}'"
    return [Problem("train.resume", message, "set another run.id, or continue a checkpoint of this model")]


def _settings(run: Path) -> dict[str, Any]:
    """The configuration that a run was started with; {} if it is not there."""
    path = run / CONFIG
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}


def start(config: Config) -> str:
    """In words: where the run begins."""
    resume, there = config.train.resume, complete_checkpoints(folder(config))
    if resume not in ("auto", "never"):
        return f"continues {resume}"
    return f"continues {there[-1].name}" if there and resume == "auto" else "new"


def differences(config: Config) -> list[str]:
    """Keys of the model and data sections that changed since the run that is continued was started."""
    run = folder(config)
    if config.train.resume != "auto" or not complete_checkpoints(run) or not (run / CONFIG).is_file():
        return []
    before = dict(leaves(_settings(run)))
    now = dict(leaves(plain(config)))
    return [
        f"{key}: {before.get(key)!r} -> {value!r}"
        for key, value in now.items()
        if key.startswith(("model.", "data.")) and before.get(key) != value
    ]


def unwritable(run: Path) -> str:
    """Why nothing can be written below `run`, or ""."""
    existing = next(parent for parent in (run, *run.absolute().parents) if parent.exists())
    if not existing.is_dir():
        return f"{existing} is a file"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"no permission in {existing}"
    return ""


def checkpoint(run: Path, which: str) -> Path | None:
    """The checkpoint `which` of a run: "latest", a step, or a path; `None` if it does not exist or is incomplete."""
    there = complete_checkpoints(run)
    if which == "latest":
        return there[-1] if there else None
    if which.isdigit():
        return next((path for path in there if path.name == layout.step_name(int(which))), None)
    path = Path(which).expanduser()
    return path if (path / layout.MANIFEST).is_file() else None
