"""ZeRO-2 and ZeRO-3 through DeepSpeed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from vla_backend import Backend
from vla_train.train.errors import TrainError
from vla_train.train.strategy import Losses, autocast_inside


class Zero:
    """Optimizer state and gradients (stage 2), and parameters too (stage 3), sharded over the ranks.

    Args:
        model: on the CPU, all trained parameters of one dtype; frozen networks already detached.
        optimizer: over the model's trained parameters; DeepSpeed shards it.
        settings: the complete DeepSpeed configuration; it also clips and accumulates.
        dtype: of autocast.
        timeout_s: of every process group that DeepSpeed creates.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        backend: Backend,
        *,
        settings: Mapping[str, Any],
        dtype: torch.dtype,
        timeout_s: float,
    ) -> None:
        deepspeed = load_deepspeed(timeout_s)
        self.model = model
        autocast_inside(model, backend, dtype)
        with _groups_with_timeout(timeout_s):
            self.deepspeed, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=dict(settings))

    def forward(self, batch: Any) -> Losses:
        losses: Losses = self.deepspeed(batch)
        return losses

    def accumulating(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self.deepspeed.backward(loss)
        if not last:
            # Before the last batch this only counts.
            self.deepspeed.step()

    def step(self, want_norm: bool) -> torch.Tensor | float | None:
        self.deepspeed.step()
        norm: torch.Tensor | float | None = self.deepspeed.get_global_grad_norm()
        return norm

    def scaler_state(self) -> dict[str, Any]:
        return {}  # DeepSpeed keeps its loss scale in its own files

    def load_scaler_state(self, state: dict[str, Any]) -> None:
        pass


def load_deepspeed(timeout_s: float) -> Any:
    """Import DeepSpeed, set up for training only.

    Raises:
        TrainError: it is not installed.
    """
    os.environ.setdefault("LOCAL_RANK", "0")
    os.environ.setdefault("DEEPSPEED_TIMEOUT", str(math.ceil(timeout_s / 60)))
    try:
        import deepspeed

        # Not `import ... as`: the package's attribute of this name is torch itself.
        torch_comm = importlib.import_module("deepspeed.comm.torch")
    except ImportError as error:
        raise TrainError(
            "DeepSpeed is not installed.",
            why=f"parallel.strategy asks for ZeRO ({error})",
            fix="`pip install deepspeed` (Linux), or parallel.strategy=ddp",
        ) from error
    # On hosts without a device DeepSpeed compiles a shared-memory all-reduce at first use, for minutes and behind a
    # lock file; only tensor-parallel inference calls it.
    torch_comm.build_shm_op = lambda: None  # type: ignore[attr-defined]
    # Its calls of collectives that torch 2.13 renamed would warn at every step.
    warnings.filterwarnings("ignore", message=r".*torch\.distributed\.\w+` is deprecated", category=FutureWarning)
    deepspeed.utils.logger.setLevel(logging.WARNING)
    return deepspeed


@contextlib.contextmanager
def _groups_with_timeout(timeout_s: float) -> Iterator[None]:
    """DeepSpeed makes its own groups with torch's default timeout; give them the job's."""
    original = torch.distributed.new_group
    torch.distributed.new_group = functools.partial(original, timeout=timedelta(seconds=timeout_s))
    try:
        yield
    finally:
        torch.distributed.new_group = original
