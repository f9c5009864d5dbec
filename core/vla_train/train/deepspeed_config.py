"""The DeepSpeed configuration of a run. No torch here: the launcher checks it before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vla_train.config.schema import Config
from vla_train.train.errors import TrainError

STAGES: Final = {"zero2": 2, "zero3": 3}
# Settings that have a key of their own in our configuration: (path in DeepSpeed's, our key).
OWNED: Final = {
    "bf16.enabled": "parallel.mixed_precision",
    "fp16.enabled": "parallel.mixed_precision",
    "torch_autocast.enabled": "parallel.mixed_precision",
    "train_batch_size": "data.batch_size",
    "train_micro_batch_size_per_gpu": "data.batch_size",
    "gradient_accumulation_steps": "train.gradient_accumulation_steps",
    "gradient_clipping": "train.gradient_clipping",
    "zero_optimization.stage": "parallel.strategy",
}
FORBIDDEN: Final = {
    "optimizer": "train.optimizer",
    "scheduler": "train.scheduler",
}


def deepspeed_config(config: Config, world_size: int) -> dict[str, Any]:
    """The complete DeepSpeed configuration for `parallel.strategy` zero2 or zero3, the user's settings merged in.

    Raises:
        TrainError: `parallel.deepspeed` contradicts a key of ours, or cannot be read.
    """
    train, precision = config.train, config.parallel.mixed_precision
    micro, accumulation = config.data.batch_size, train.gradient_accumulation_steps
    stage = STAGES[config.parallel.strategy]
    zero: dict[str, Any] = {
        "stage": stage,
        "contiguous_gradients": True,
        "overlap_comm": True,
        "reduce_bucket_size": 500_000_000,
    }
    if stage == 2:
        zero |= {"reduce_scatter": True, "allgather_partitions": True, "allgather_bucket_size": 500_000_000}
    else:
        zero |= {
            "stage3_prefetch_bucket_size": 50_000_000,
            "stage3_param_persistence_threshold": 100_000,
            "stage3_max_live_parameters": 1_000_000_000,
            "stage3_max_reuse_distance": 1_000_000_000,
            "stage3_gather_16bit_weights_on_model_save": False,
        }
    ours: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": micro * accumulation * world_size,
        "gradient_clipping": train.gradient_clipping or 0.0,
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": precision == "fp16"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        # With offload DeepSpeed would insist on an optimizer of its own that has to be compiled.
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
    theirs = user_settings(config.parallel.deepspeed)
    _check_owned(ours, theirs)
    merged: dict[str, Any] = _merge(ours, theirs)
    return merged


def user_settings(setting: Any) -> dict[str, Any]:
    """`parallel.deepspeed` as a dictionary: given in place, or the path of a JSON file.

    Raises:
        TrainError: the file is missing or is no JSON object.
    """
    if setting is None:
        return {}
    if isinstance(setting, Mapping):
        return {str(key): value for key, value in setting.items()}
    path = Path(str(setting))
    try:
        loaded = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise TrainError(
            f"parallel.deepspeed names {path}, which cannot be read.",
            why=str(error),
            fix="give the path of a JSON file, or the settings themselves",
        ) from error
    if not isinstance(loaded, dict):
        raise TrainError(f"{path} is no JSON object.", fix="see parallel.deepspeed in docs/configuration.md")
    return loaded


def _check_owned(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    for key, owner in FORBIDDEN.items():
        if key in theirs:
            raise TrainError(f"parallel.deepspeed sets '{key}'.", why=f"{owner} decides it", fix=f"move it to {owner}")
    for path, owner in OWNED.items():
        asked = _lookup(theirs, path)
        if asked is None or asked == "auto":
            continue
        value = _lookup(ours, path)
        if asked != (False if value is None else value):
            raise TrainError(
                f"parallel.deepspeed.{path} is {asked!r}, but {owner} makes it {value!r}.",
                why="one setting has two owners that disagree",
                fix=f"remove {path} from parallel.deepspeed and set {owner}",
            )


def _lookup(tree: Mapping[str, Any], path: str) -> Any:
    found: Any = tree
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _merge(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(ours)
    for key, value in theirs.items():
        if isinstance(value, Mapping):
            known = merged.get(key)
            merged[key] = _merge(known if isinstance(known, Mapping) else {}, value)
        elif value != "auto":
            merged[key] = value
    return merged
