"""Networks within a model that are never trained: the engine keeps them out of the optimizer, DDP and ZeRO."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


class WithFrozenNetworks(nn.Module):
    """A model that names such networks in `frozen()`."""

    def frozen(self) -> dict[str, nn.Module]:
        """The networks by dotted name; a subclass names its own."""
        return {}

    def detach_frozen(self) -> dict[str, nn.Module]:
        """Take the frozen networks out of `parameters()`, `modules()` and `state_dict()`; they keep working.

        Whoever calls this places them, each where it likes. A second call changes nothing.
        """
        frozen = self.frozen()
        for name, network in frozen.items():
            parent, _, attribute = name.rpartition(".")
            owner = self.get_submodule(parent)
            if attribute in owner._modules:
                del owner._modules[attribute]
                owner.__dict__[attribute] = network
        return frozen

    def full_state_dict(self, trained: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """All weights under their published names, detached networks included.

        Args:
            trained: weights to use instead of `state_dict()`, e.g. gathered from several processes.
        """
        state = dict(self.state_dict() if trained is None else trained)
        for name, network in self.frozen().items():
            for key, value in network.state_dict().items():
                state.setdefault(f"{name}.{key}", value)
        return state
