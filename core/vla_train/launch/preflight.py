"""What can be found wrong about this machine and this run before a process is started."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name

from vla_backend import Backend
from vla_train.config import Config, Problem, Sources, plain
from vla_train.config.errors import raise_if
from vla_train.config.files import datasets_below, nearest_path
from vla_train.config.typed import leaves
from vla_train.launch import runs
from vla_train.models import find

#: By convention a field of a model's configuration with such a name is a folder of weights or a hub id.
_WEIGHTS = ("path", "base_model")
#: A field beside it that says that nothing is downloaded.
OFFLINE: Final = "local_files_only"
#: More datasets than this are not listed one by one.
MANY: Final = 3
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
        problems += _missing_datasets(config, root)
    weights = config.train.pretrained_checkpoint
    if weights and not Path(weights).expanduser().exists():
        remedy = nearest_path(Path(weights).expanduser())
        problems.append(Problem("train.pretrained_checkpoint", f"there is no {weights}", remedy))
    settings = dict(leaves(plain(config.model), "model"))
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if name not in _WEIGHTS or not isinstance(value, str) or not value or Path(value).expanduser().exists():
            continue
        if not _may_be_hub_id(value):
            remedy = nearest_path(Path(value).expanduser()) + _random_weights(config)
            problems.append(Problem(key, f"there is no folder {value}", remedy))
        elif settings.get(f"{section}.{OFFLINE}") and not _downloaded(value):
            message = f"there is no folder {value} here, and no repository {value} in {constants.HF_HUB_CACHE}"
            remedy = f"correct the path, or `hf download {value}`, or let the run do that: {section}.{OFFLINE}=false"
            problems.append(Problem(key, message, remedy + _random_weights(config)))
    return problems


def _downloaded(hub_id: str) -> bool:
    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=hub_id, repo_type="model")).is_dir()


def _random_weights(config: Config) -> str:
    """How to get small weights for a try, where the model's package has a program that writes them."""
    packages = {target.partition(".")[0] for target in find(config.model.name).tiny.values()}
    programs = [f"{name}.tiny" for name in sorted(packages) if importlib.util.find_spec(f"{name}.tiny")]
    return f" (for a try: `python -m {programs[0]} FOLDER` writes small random weights)" if programs else ""


def _missing_datasets(config: Config, root: Path) -> list[Problem]:
    """Datasets that are not there; many are one problem, for then it is their root that is wrong."""
    problems: list[Problem] = []
    folders = _dataset_folders(config)
    absent = [key_path for key_path in folders if not (root / Path(key_path[1]).expanduser()).is_dir()]
    if len(absent) > MANY:
        key = absent[0][0].partition("[")[0]
        some = ", ".join(path for _, path in absent[:MANY])
        message = f"{len(absent)} of {len(folders)} datasets are not below {root.resolve()}: {some}, ..."
        return [Problem(key, message, f"set data.root to the folder that holds {absent[0][1]}")]
    for key, path in folders:
        folder = root / Path(path).expanduser()
        if (key, path) in absent:
            problems.append(Problem(key, f"there is no folder {folder}", nearest_path(folder)))
        elif not (folder / "meta" / "info.json").is_file():
            message = f"{folder} is no LeRobot dataset: it has no meta/info.json"
            problems.append(Problem(key, message, datasets_below(folder)))
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


def _may_be_hub_id(value: str) -> bool:
    return _HUB_ID.fullmatch(value) is not None and not Path(value).parent.is_dir()


def _raise(problems: list[Problem], sources: Sources) -> None:
    raise_if([replace(problem, source=problem.source or sources.where(problem.key)[0]) for problem in problems])
