"""Finding models among the installed distributions; a model package describes itself with one `ModelEntry`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final

from vla_backend.errors import BackendError

GROUP: Final = "vla_train.models"


class UnknownModel(BackendError):
    """No installed distribution provides the model asked for."""


@dataclass(frozen=True)
class ModelEntry:
    """What a model package provides; the module that holds it imports no torch.

    The fields written as "module:function" are imported when they are needed.

    Attributes:
        name: what `model.name` in a configuration says.
        config_class: dataclass of the `model:` section.
        build: `(config, backend) -> torch.nn.Module`, on the CPU, weights loaded.
        dataset: `(config, video_ctx, split) -> Dataset`, split "train" or "eval".
        collate: `(list of samples) -> batch`.
        translate: turns the upstream project's configuration into ours; `None` answers "not my layout".
        import_checkpoint: `(model, path) -> None`, loads the upstream project's checkpoint, strictly.
        export_checkpoint: `(model, run_dir, out, statistics) -> list of files`, writes the upstream project's layout.
        dataset_folders: `(config.data) -> list of folders below data.root`; imports no torch, so that the launcher
            can check them; "" if the model reads just the `data.datasets` of the configuration.
        policy: `(model, backend, config, statistics) -> policy(request) -> answer`, what `vla serve` serves; the model
            is in evaluation mode on its device, `statistics` are the run's `dataset_statistics.json`, {} without a run.
        outline: `(config, backend) -> vla_train.estimate.outline.Outline`, model and batch as shapes without weights or
            data, for `vla estimate`; "" if only building the model tells its shapes.
        protocol: what `vla serve` speaks unless told otherwise, a name in `vla_train.serve.PORTS`.
        defaults: values of other sections that suit this model, in place of the engine's.
        tiny: the "module:function" `(folder) -> None` per format of published weights that this model reads; each
            writes small random weights in it, for tests without a download; see `vla_train.testing`.
        options: command-line options of the model by name without dashes in front; each turns its text into settings.
    """

    name: str
    config_class: type
    build: str
    dataset: str
    collate: str
    translate: Callable[[Mapping[str, Any]], dict[str, Any] | None] | None = None
    import_checkpoint: str = ""
    export_checkpoint: str = ""
    dataset_folders: str = ""
    policy: str = ""
    outline: str = ""
    protocol: str = "websocket"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    tiny: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Callable[[str], Sequence[str]]] = field(default_factory=dict)

    def call(self, name: str) -> Callable[..., Any]:
        """Import the function that the "module:function" in field `name` names."""
        module, _, attribute = str(getattr(self, name)).partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return function


def entries() -> dict[str, metadata.EntryPoint]:
    """Installed models by name, none imported."""
    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}


def find(name: str) -> ModelEntry:
    """The model called `name`.

    Raises:
        UnknownModel: not installed; the message lists those that are.
    """
    installed = entries()
    if name not in installed:
        near = difflib.get_close_matches(name, installed, n=1)
        raise UnknownModel(
            f"There is no model named '{name}'.",
            why=f"installed: {', '.join(sorted(installed)) or 'none'}",
            fix=f"did you mean '{near[0]}'?" if near else "set `model.name`, or install the package that provides it",
        )
    entry: ModelEntry = installed[name].load()
    return entry
