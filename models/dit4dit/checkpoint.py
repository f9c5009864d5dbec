"""Upstream's checkpoints: reading them strictly and writing them in upstream's layout."""

from __future__ import annotations

import difflib
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from vla_dit4dit.errors import CheckpointError
from vla_dit4dit.model import DiT4DiT
from vla_dit4dit.upstream_config import to_upstream

STEP_FILE = re.compile(r"steps_(\d+)_pytorch_model\.pt$")


def find_checkpoint(path: Path | str) -> Path:
    """The weights file meant by `path`: itself, or of a run folder the final model, else the highest step.

    Raises:
        CheckpointError: nothing there.
    """
    path = Path(path)
    if path.is_file():
        return path
    for final in (path / "final_model" / "pytorch_model.pt", path / "pytorch_model.pt"):
        if final.is_file():
            return final
    steps = [
        (int(match.group(1)), file)
        for folder in (path / "checkpoints", path)
        if folder.is_dir()
        for file in folder.iterdir()
        if (match := STEP_FILE.search(file.name))
    ]
    if steps:
        return max(steps)[1]
    raise CheckpointError(
        f"There is no upstream checkpoint at '{path}'.",
        why="it is no .pt file and holds neither final_model/pytorch_model.pt nor checkpoints/steps_*_pytorch_model.pt",
        fix="give the .pt file or the run folder that holds config.yaml",
    )


def read_weights(path: Path | str) -> dict[str, torch.Tensor]:
    """The state dictionary of a .pt file, loaded without running code from it."""
    file = find_checkpoint(path)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except Exception as error:  # The reader of untrusted bytes fails in many ways.
        raise CheckpointError(
            f"'{file}' is not a file of weights.",
            why=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
            fix="save it with torch.save(state_dict)",
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise CheckpointError(
            f"'{file}' does not hold a state dictionary.",
            why=f"it holds {type(state).__name__} with other values than tensors",
            fix="export the model's state_dict()",
        )
    return dict(state)


def import_checkpoint(model: DiT4DiT, path: Path | str, modules: Iterable[str] = ()) -> None:
    """Load upstream's weights, strictly, also into networks that are detached.

    Args:
        model: built with the configuration that the weights belong to.
        path: .pt file or run folder.
        modules: dotted module paths to load; empty for the whole model.

    Raises:
        CheckpointError: names or shapes differ; nothing is loaded then.
    """
    prefixes = tuple(f"{name}." for name in modules)
    weights, own = read_weights(path), model.full_state_dict()
    if prefixes:
        weights = {key: value for key, value in weights.items() if key.startswith(prefixes)}
        own = {key: value for key, value in own.items() if key.startswith(prefixes)}
        if not own:
            raise CheckpointError(
                f"The model has no module {', '.join(modules)}.",
                fix="use paths such as action_model or backbone_interface",
            )
    elif model.action_model is None:
        # A video model takes a joint checkpoint's video part.
        weights = {key: value for key, value in weights.items() if not key.startswith("action_model.")}
    _check(weights, own, path)
    frozen = model.frozen()
    for prefix, network in frozen.items():
        part = {key[len(prefix) + 1 :]: value for key, value in weights.items() if key.startswith(f"{prefix}.")}
        if part:
            network.load_state_dict(part, strict=False)
    rest = {key: value for key, value in weights.items() if not key.startswith(tuple(f"{name}." for name in frozen))}
    model.load_state_dict(rest, strict=False)


def export_checkpoint(
    model: DiT4DiT,
    run_dir: Path | str,
    out: Path | str,
    statistics: Mapping[str, Any],
    step: int | None = None,
) -> list[Path]:
    """Write a run folder that upstream's `from_pretrained` accepts.

    Args:
        model: its full weights are written.
        run_dir: run folder whose `config.yaml` holds our complete configuration.
        out: folder to write; created.
        statistics: contents of `dataset_statistics.json`.
        step: write `checkpoints/steps_<step>_pytorch_model.pt` instead of `final_model/pytorch_model.pt`.

    Returns:
        The files written, the weights first.
    """
    config_file = Path(run_dir) / "config.yaml"
    if not config_file.is_file():
        raise CheckpointError(f"'{config_file}' is missing.", fix="give the folder of a run")
    native = yaml.safe_load(config_file.read_text())
    if model.action_model is None:
        raise CheckpointError(
            "A model of mode video cannot be exported.",
            why="upstream's checkpoints always hold an action head",
            fix="train in mode joint or action",
        )
    native["model"]["action_head"]["cross_attention_dim"] = model.action_model.context_dim
    out = Path(out)
    weights = out / "final_model" / "pytorch_model.pt"
    if step is not None:
        weights = out / "checkpoints" / f"steps_{step}_pytorch_model.pt"
    weights.parent.mkdir(parents=True, exist_ok=True)
    torch.save({key: value.detach().cpu().contiguous() for key, value in model.full_state_dict().items()}, weights)
    config = out / "config.yaml"
    config.write_text(yaml.safe_dump(to_upstream(native), sort_keys=False))
    facts = out / "dataset_statistics.json"
    facts.write_text(json.dumps(statistics, indent=2))
    return [weights, config, facts]


def _check(weights: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor], path: Path | str) -> None:
    unknown = [key for key in weights if key not in own]
    missing = [key for key in own if key not in weights]
    shapes = [
        f"{key}: {tuple(weights[key].shape)} in the file, {tuple(own[key].shape)} in the model"
        for key in weights
        if key in own and weights[key].shape != own[key].shape
    ]
    lines = []
    for key in unknown[:5]:
        near = difflib.get_close_matches(key, missing or own, n=1)
        lines.append(f"unknown {key}" + (f" (nearest: {near[0]})" if near else ""))
    lines += [f"missing {key}" for key in missing[:5]]
    lines += shapes[:5]
    if lines:
        raise CheckpointError(
            f"The checkpoint '{path}' does not fit the model: {len(unknown)} unknown and {len(missing)} missing names, "
            f"{len(shapes)} different shapes.",
            why="\n       ".join(lines),
            fix="build the model with the configuration stored beside the checkpoint",
        )
