"""Mistakes that show between two processes."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.broken.sound import Present
from vla_backend import hookimpl


class UnknownLibrary(Present):
    @hookimpl
    def dist_backend():
        return "mychip_collectives"


class CollectivesNowhere(Present):
    @hookimpl
    def collective_device(device):
        import torch

        return torch.device("meta")


class OneFileForAll(Present):
    @hookimpl
    def save_sharded(state, directory):
        from safetensors.torch import save_file

        save_file({name: tensor.clone() for name, tensor in state.tensors().items()}, str(Path(directory) / "all"))
        return ["all"]
