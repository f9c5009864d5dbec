"""What can be found wrong about this machine and this run before a process is started."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from vla_backend import Backend
from vla_train.config import Config, Problem, Sources, plain
from vla_train.config.errors import raise_if
from vla_train.config.files import datasets_below, nearest_path
from vla_train.config.typed import leaves
from vla_train.launch import runs
from vla_train.models import find

#: By convention a field of a model's configuration with such a name is a folder of weights or a hub id.
_WEIGHTS = ("path", "base_model")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def check_training(config: Config, sources: Sources, backend: Backend, env: Mapping[str, str]) -> list[str]:
    """Warnings about a training run; what would stop it is raised as one `ConfigError`."""
    problems = [*_processes(config, backend, env), *_packages(config), *missing_files(config), *runs.problems(config)]
    found, warnings = backend_findings(config, backend, env)
    _raise([*problems, *found], sources)
    return warnings


def check_evaluation(config: Config, sources: Sources, backend: Backend, env: Mapping[str, str]) -> list[str]:
    """The same for an evaluation."""
    found, warnings = backend_findings(config, backend, env)
    weights = [problem for problem in missing_files(config) if problem.key != "train.pretrained_checkpoint"]
    _raise([*weights, *found], sources)
    return warnings


def check_serving(config: Config, sources: Sources, backend: Backend, env: Mapping[str, str]) -> list[str]:
    """The same for serving, which needs no data."""
    found, warnings = backend_findings(config, backend, env)
    weights = [problem for problem in missing_files(config) if not problem.key.startswith("data.")]
    _raise([*weights, *found], sources)
    return warnings


def backend_findings(config: Config, backend: Backend, env: Mapping[str, str]) -> tuple[list[Problem], list[str]]:
    """The backend's own findings: those that stop the job, and warnings."""
    problems: list[Problem] = []
    warnings: list[str] = []
    for issue in backend.check_config(plain(config), env):
        problem = Problem(issue.key, issue.message, issue.remedy, chinese=issue.chinese)
        if issue.level == "error":
            problems.append(problem)
        else:
            warnings.append(str(problem))
    return problems, warnings


def _processes(config: Config, backend: Backend, env: Mapping[str, str]) -> list[Problem]:
    probe = backend.probe(env)
    asked, there = config.parallel.processes, probe.device_count
    if probe.shared or asked <= there:
        return []
    variable = backend.visible_devices_env
    limit = f" ({variable}={env[variable]} limits them)" if variable in env else ""
    remedy = f"use at most {there} processes" + (f", or make more devices visible with {variable}" if variable else "")
    message = f"is {asked}, but backend '{backend.name}' sees {there} device{'s' * (there != 1)}{limit}"
    return [Problem("parallel.processes", message, remedy)]


def _packages(config: Config) -> list[Problem]:
    needed = []
    if config.parallel.strategy != "ddp":
        needed.append(("parallel.strategy", f"{config.parallel.strategy} needs DeepSpeed", "deepspeed"))
    if "wandb" in config.run.loggers:
        needed.append(("run.loggers", "the logger 'wandb' needs wandb", "wandb"))
    return [
        Problem(key, f"{message}, which is not installed", f"pip install {package}")
        for key, message, package in needed
        if importlib.util.find_spec(package) is None
    ]


def missing_files(config: Config) -> list[Problem]:
    """Every file and folder that the configuration names and that does not exist."""
    problems: list[Problem] = []
    root = Path(config.data.root).expanduser()
    if not root.is_dir():
        problems.append(Problem("data.root", f"there is no folder {config.data.root}", nearest_path(root)))
    else:
        for key, path in _dataset_folders(config):
            folder = root / Path(path).expanduser()
            if not folder.is_dir():
                problems.append(Problem(key, f"there is no folder {folder}", nearest_path(folder)))
            elif not (folder / "meta" / "info.json").is_file():
                message = f"{folder} is no LeRobot dataset: it has no meta/info.json"
                problems.append(Problem(key, message, datasets_below(folder)))
    weights = config.train.pretrained_checkpoint
    if weights and not Path(weights).expanduser().exists():
        remedy = nearest_path(Path(weights).expanduser())
        problems.append(Problem("train.pretrained_checkpoint", f"there is no {weights}", remedy))
    for key, value in leaves(plain(config.model), "model"):
        if key.rpartition(".")[2] in _WEIGHTS and isinstance(value, str) and value and not _exists_or_hub(value):
            problems.append(Problem(key, f"there is no folder {value}", nearest_path(Path(value).expanduser())))
    return problems


def _dataset_folders(config: Config) -> list[tuple[str, str]]:
    """Key and folder of every dataset, those of a named mixture included.

    Raises:
        BackendError: the model knows no such mixture or robot.
    """
    entry = find(config.model.name)
    if entry.dataset_folders:
        # Asked also without a mixture: it knows the robots.
        folders = entry.call("dataset_folders")(config.data)
        if config.data.mixture:
            return [("data.mixture", path) for path in folders]
    return [(f"data.datasets[{index}].path", entry.path) for index, entry in enumerate(config.data.datasets)]


def _exists_or_hub(value: str) -> bool:
    path = Path(value).expanduser()
    return path.exists() or (_HUB_ID.fullmatch(value) is not None and not path.parent.is_dir())


def _raise(problems: list[Problem], sources: Sources) -> None:
    raise_if([replace(problem, source=problem.source or sources.where(problem.key)[0]) for problem in problems])
