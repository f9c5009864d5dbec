"""The plugin under check, brought as far as a check needs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_backend import Backend, Candidate, activate
from vla_backend.activation import register
from vla_backend.hookspecs import SPECS
from vla_backend.resolve import call_for
from vla_train.conformance.checks import Skip

if TYPE_CHECKING:
    import pluggy
    import torch

    from vla_train.train.world import World


class Subject:
    """One plugin in one process.

    Args:
        candidate: the plugin.
        folder: for files of the checks; the same for all ranks of a pair.
    """

    def __init__(self, candidate: Candidate, folder: Path) -> None:
        self.candidate = candidate
        self.folder = folder
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._given_up = ""

    @cached_property
    def backend(self) -> Backend:
        """Activated, whether or not its hardware is here. The first check to ask reports why it cannot be."""
        return self._once("it cannot be activated", lambda: activate(self.candidate, check_available=False))

    @cached_property
    def manager(self) -> pluggy.PluginManager:
        """The hooks themselves, without what the facade adds."""
        _ = self.backend
        return register(self.candidate)

    def call(self, hook: str) -> Callable[..., Any]:
        """The hook as the host calls it, its answer's type checked, without the facade around it."""
        return call_for(self.manager, self.candidate.name, hook, SPECS[hook].phase)

    @property
    def package(self) -> str:
        """Top-level package of the plugin."""
        return self.candidate.target.partition(":")[0].partition(".")[0]

    @cached_property
    def loaded(self) -> Backend:
        """With torch and the vendor's packages imported."""

        def load() -> Backend:
            self.backend.load_stack()
            return self.backend

        return self._once("its load_stack failed", load)

    @cached_property
    def ready(self) -> Backend:
        """With the device of this rank."""

        def take() -> Backend:
            self.loaded.local_device(self.local_rank)
            return self.loaded

        return self._once("its local_device failed", take)

    @property
    def device(self) -> torch.device:
        return self.ready.device

    @cached_property
    def world(self) -> World:
        """The process group of the pair; joined at first use, with a short time limit for collectives."""
        from vla_train.train.world import join

        limit = float(os.environ.get("VLA_CONFORMANCE_TIMEOUT", "60"))
        return self._once("it cannot join a process group", lambda: join(self.ready, limit))

    def _once(self, why: str, make: Callable[[], Any]) -> Any:
        if self._given_up:
            raise Skip(f"{self._given_up}, see the first failure")
        try:
            return make()
        except Exception:
            self._given_up = self._given_up or why
            raise
