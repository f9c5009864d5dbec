"""Whether the data at hand is the data that a run was trained on, as far as its normalisation goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from vla_backend.errors import BackendError
from vla_train.train.setup import STATISTICS

GROUPS: Final = ("action", "state")


def check_statistics(run: Path, dataset: Any) -> None:
    """Compare a dataset's statistics with those that the run wrote when it was trained.

    A model answers normalised actions; with other statistics they would become other movements.

    Args:
        run: folder of the run; without its `dataset_statistics.json` nothing is compared.
        dataset: has `statistics`, by tag and group.

    Raises:
        BackendError: they differ.
    """
    path = run / STATISTICS
    if not path.is_file() or not hasattr(dataset, "statistics"):
        return
    trained = json.loads(path.read_text(encoding="utf-8"))
    for tag, groups in dataset.statistics.items():
        if tag not in trained:
            raise BackendError(
                f"The run was not trained on '{tag}'.",
                why=f"{path} has statistics of {', '.join(trained) or 'nothing'}",
                fix="evaluate it on the data it was trained on, or set the robot's `tag` to one of these",
            )
        for group in GROUPS:
            for name, values in groups.get(group, {}).items():
                before = trained[tag].get(group, {}).get(name)
                if before is not None and not _alike(values, before):
                    raise BackendError(
                        f"The data of '{tag}' has other statistics than the data that the run was trained on.",
                        why=f"{group}.{name} is {_short(values)} now and {_short(before)} in {path}",
                        fix="evaluate with the run's own data section: the same sets, weights and holdout_episodes",
                    )


def _alike(now: Any, before: Any) -> bool:
    try:
        left, right = np.asarray(now, dtype=np.float64), np.asarray(before, dtype=np.float64)
    except (TypeError, ValueError):  # names and the like
        return True
    return left.shape == right.shape and np.allclose(left, right, rtol=1e-4, atol=1e-6, equal_nan=True)


def _short(values: Any) -> str:
    return np.array2string(np.asarray(values, dtype=np.float64).reshape(-1)[:4], precision=4, separator=", ")
