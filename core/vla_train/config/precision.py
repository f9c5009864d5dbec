"""Precision has one owner, `parallel.mixed_precision`; here is found what contradicts it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from vla_train.config.schema import Config
from vla_train.config.typed import leaves, plain

_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "no": "fp32"}


def conflicts(config: Config, env: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
    """Where another setting contradicts `parallel.mixed_precision` and its neighbours, as (key, message, remedy).

    Compared are the DeepSpeed settings (`parallel.deepspeed`, in place or in the file it names), every `dtype` of the
    `model:` section (the storage of trained weights), and the variable ACCELERATE_MIXED_PRECISION.
    """
    wanted = config.parallel.mixed_precision
    found = _deepspeed(config)
    for key, value in leaves(plain(config.model), "model"):
        # float32 weights suit every precision; half-precision weights only their own.
        stored = _SHORT.get(value, value) if isinstance(value, str) else None
        if key.rpartition(".")[2] == "dtype" and stored in ("bf16", "fp16") and stored != wanted:
            found.append(
                (
                    key,
                    f"stores the weights in {value} but parallel.mixed_precision is {wanted}",
                    f"set {key}=float32, or parallel.mixed_precision={stored}",
                )
            )
    inherited = (os.environ if env is None else env).get("ACCELERATE_MIXED_PRECISION")
    if inherited and _SHORT.get(inherited, inherited) != wanted:
        found.append(
            (
                "parallel.mixed_precision",
                f"is {wanted} but the variable ACCELERATE_MIXED_PRECISION says {inherited}",
                "unset the variable",
            )
        )
    return found


def _deepspeed(config: Config) -> list[tuple[str, str, str]]:
    # Imported late: that module needs this package.
    from vla_train.train.deepspeed_config import STAGES, deepspeed_config
    from vla_train.train.errors import TrainError

    strategy = config.parallel.strategy
    if strategy not in STAGES:
        unused = config.parallel.deepspeed is not None
        remedy = "set parallel.strategy=zero2 or zero3, or remove it"
        return [("parallel.deepspeed", f"is set, but parallel.strategy is {strategy}", remedy)] if unused else []
    try:
        deepspeed_config(config, config.parallel.processes)
    except TrainError as error:
        return [("parallel.deepspeed", f"{error.what} {error.why}".strip(), error.fix)]
    return []
