"""GR00T checkpoints in the layout of the hub: reading, writing, and building models from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from vla_backend import Backend
from vla_groot.architecture import Architecture
from vla_groot.backbone_files import SUBFOLDER, BackboneFiles
from vla_groot.errors import BackboneError, CheckpointError
from vla_groot.hub import resolve
from vla_groot.model import QWEN, Groot

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
CHECKPOINT_FILES = ("*.json", "*.safetensors", "processor/*", f"{SUBFOLDER}/*")


def find_checkpoint(name: Path | str, revision: str | None = None) -> Path:
    """Folder of the checkpoint called `name`, a folder or a hub id.

    Raises:
        CheckpointError: it cannot be had; the message names the remedy.
    """
    return resolve(str(name), revision=revision, patterns=CHECKPOINT_FILES)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, complete.

    Raises:
        CheckpointError: there are none, or some are missing.
    """
    if (folder / INDEX).is_file():
        names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        names = [SINGLE]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} lacks weights.", why=f"not found: {', '.join(missing[:3])}", fix="download the rest"
        )
    return [folder / name for name in names]


def read_weights(folder: Path, wanted: Mapping[str, torch.dtype] | None = None) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint; those in `wanted` in the given dtype.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open

    found: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, "pt") as file:
                for key in file.keys():  # noqa: SIM118, safe_open is no mapping
                    tensor = file.get_tensor(key)
                    found[key] = tensor.to(wanted[key]) if wanted and key in wanted else tensor
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} cannot be read.", why=str(error), fix="copy the file again") from error
    return found


def load_model(
    name: Path | str,
    backend: Backend,
    *,
    revision: str | None = None,
    changes: Mapping[str, Any] | None = None,
    backbone: str = "",
    dtype: torch.dtype = torch.float32,
) -> Groot:
    """The model of a checkpoint, on the CPU, in eval mode.

    Nothing but the checkpoint is read for the weights; of the backbone's repository only configuration files, and
    those not if the backbone is a published one or a copy of its small files lies beside the weights.

    Args:
        name: folder or hub id.
        backend: the active backend.
        revision: hub revision.
        changes: keys of `config.json` to change.
        backbone: folder or hub id to take the backbone's configuration from instead.
        dtype: of all weights; `load_bf16` overrides it for the frozen part of the backbone.

    Raises:
        CheckpointError: the checkpoint cannot be had, is damaged, or does not fit its configuration.
        BackboneError: the same of the backbone.
    """
    folder = find_checkpoint(name, revision)
    config = Architecture.read(folder).updated(changes or {})
    if backbone:
        config.model_name, config.model_revision = backbone, None
    files = BackboneFiles.of_checkpoint(config.model_name, config.model_revision, None if backbone else folder)
    model = build_empty(config, files.config(), backend)
    load_weights(model, read_weights(folder, weight_dtypes(model, dtype)), folder)
    return model.eval()


def build_empty(config: Architecture, qwen: dict[str, Any], backend: Backend) -> Groot:
    """A model whose weights have shapes but no memory; its buffers are real."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        return Groot(config, qwen, backend)


def build_new(config: Architecture, files: BackboneFiles, backend: Backend) -> Groot:
    """A model with a new action head on the backbone's own weights.

    Raises:
        BackboneError: the backbone cannot be had or does not fit.
    """
    model = Groot(config, files.config(), backend)
    folder = files.folder(weights=True)
    layers = f"{QWEN}.language_model.layers."
    weights = {}
    for key, tensor in read_weights(folder).items():
        name = f"{QWEN}.{key.removeprefix('model.')}"
        if key.startswith("lm_head") or (name.startswith(layers) and _layer(name, layers) >= config.select_layer):
            continue
        weights[name] = tensor
    own = {key: value for key, value in model.state_dict().items() if key.startswith("backbone.")}
    _compare(weights, own, folder, BackboneError)
    model.load_state_dict({key: weights[key].to(value.dtype) for key, value in own.items()}, strict=False)
    keep_backbone_low(model)
    return model


def load_weights(model: Groot, weights: dict[str, torch.Tensor], where: Path | str) -> None:
    """Put all `weights` into `model`, strictly; the model takes the tensors over.

    Raises:
        CheckpointError: a name is missing or too many, or a shape differs.
    """
    weights = {key: value for key, value in weights.items() if not key.endswith("lm_head.weight")}
    _compare(weights, model.state_dict(), where, CheckpointError)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    model.load_state_dict(weights, assign=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)


def import_checkpoint(model: Groot, path: Path | str, modules: Iterable[str] = ()) -> None:
    """Copy the weights of a checkpoint into `model`; with `modules` only those below these dotted names.

    Raises:
        CheckpointError: the checkpoint cannot be had or does not fit.
    """
    folder = find_checkpoint(path)
    weights = {key: value for key, value in read_weights(folder).items() if not key.endswith("lm_head.weight")}
    own = model.full_state_dict()
    chosen = tuple(f"{name.rstrip('.')}." for name in modules)
    if chosen:
        weights = {key: value for key, value in weights.items() if key.startswith(chosen)}
        own = {key: value for key, value in own.items() if key.startswith(chosen)}
    _compare(weights, own, folder, CheckpointError)
    with torch.no_grad():
        for key, target in own.items():
            target.copy_(weights[key])


def save_checkpoint(
    folder: Path, config: Architecture, weights: Mapping[str, torch.Tensor], *, max_shard_size: str = "5GB"
) -> list[str]:
    """Write config.json and the weights, split into shards if they are larger; answers the files written."""
    from huggingface_hub import save_torch_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    text = json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    save_torch_state_dict(tensors, folder, max_shard_size=max_shard_size)
    return ["config.json", *sorted(path.name for path in folder.glob("model*.safetensors*"))]


def save_backbone_files(folder: Path, files: BackboneFiles) -> list[str]:
    """Copy the backbone's small files beside the weights, so that the checkpoint loads without its repository."""
    target = folder / SUBFOLDER
    target.mkdir(parents=True, exist_ok=True)
    for path in files.small_files():
        shutil.copyfile(path, target / path.name)
    return sorted(f"{SUBFOLDER}/{path.name}" for path in target.iterdir())


def weight_dtypes(model: Groot, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The dtype of every weight: `dtype`, but for what `load_bf16` keeps of the backbone in bfloat16."""
    config = model.config
    wanted = {}
    for name, parameter in model.named_parameters():
        low = config.load_bf16 and name.startswith("backbone.")
        if low and parameter.requires_grad and config.backbone_trainable_params_fp32:
            low = False
        wanted[name] = torch.bfloat16 if low else dtype
    return wanted


def keep_backbone_low(model: Groot) -> None:
    """Convert what `load_bf16` keeps of the backbone in bfloat16."""
    wanted = weight_dtypes(model, torch.float32)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(wanted[name])


def _layer(name: str, prefix: str) -> int:
    return int(name.removeprefix(prefix).split(".", 1)[0])


def _compare(
    found: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor], where: Path | str, error: type[Any]
) -> None:
    shapes = [
        f"{key} is {tuple(found[key].shape)} in the checkpoint, {tuple(own[key].shape)} in the model"
        for key in own
        if key in found and found[key].shape != own[key].shape
    ]
    missing, unexpected = sorted(set(own) - set(found)), sorted(set(found) - set(own))
    if not (shapes or missing or unexpected):
        return
    reasons = shapes[:3]
    reasons += [f"missing: {', '.join(missing[:3])} ({len(missing)} in all)"] if missing else []
    reasons += [f"not in the model: {', '.join(unexpected[:3])} ({len(unexpected)} in all)"] if unexpected else []
    raise error(
        f"The weights in {where} do not fit the model.",
        why="; ".join(reasons),
        fix="use the settings of the checkpoint's own config.json: widths, layers and horizon cannot be changed",
    )
