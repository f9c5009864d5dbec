"""Modality configs of the user's own embodiments, from a Python or YAML file."""

from __future__ import annotations

import contextlib
import importlib.util
import runpy
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from vla_groot import modality
from vla_groot.embodiments import SLOTS
from vla_groot.errors import ConfigError
from vla_groot.modality import Embodiment, parse_embodiment


def load_modality_configs(path: Path | str) -> dict[str, Embodiment]:
    """Modality configs by tag.

    A YAML file holds `{tag: {video: {delta_indices, modality_keys}, state: ..., action: ..., language: ...}}`. A
    Python file either assigns the same to `MODALITY_CONFIGS` or calls `register_modality_config(config,
    embodiment_tag)`; files written for NVIDIA's gr00t package run unchanged, whether or not it is installed.

    Raises:
        ConfigError: the file cannot be read or says nothing.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise ConfigError(f"{path} does not exist.", why="model.modality_config names it", fix="correct the path")
    try:
        raw = _python(path) if path.suffix == ".py" else yaml.safe_load(path.read_text(encoding="utf-8"))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{path} cannot be read.", why=f"{type(error).__name__}: {error}") from error
    if not isinstance(raw, Mapping) or not raw:
        raise ConfigError(
            f"{path} describes no embodiment.",
            fix="write {tag: {video: ..., state: ..., action: ..., language: ...}}, or in Python call "
            "register_modality_config(config, embodiment_tag)",
        )
    return {str(tag): parse_embodiment(config, str(tag)) for tag, config in raw.items()}


def _python(path: Path) -> dict[str, Any]:
    registered: dict[str, Any] = {}

    def register_modality_config(config: Mapping[str, Any], embodiment_tag: Any = "new_embodiment") -> None:
        registered[str(getattr(embodiment_tag, "value", embodiment_tag))] = config

    with _stand_ins(register_modality_config):
        names = runpy.run_path(
            str(path), init_globals={"register_modality_config": register_modality_config, **_types()}
        )
    return {**names.get("MODALITY_CONFIGS", {}), **registered}


def _types() -> dict[str, Any]:
    names = ("ActionConfig", "ActionFormat", "ActionRepresentation", "ActionType", "ModalityConfig")
    return {name: getattr(modality, name) for name in names}


@contextlib.contextmanager
def _stand_ins(register: Any) -> Iterator[None]:
    """While the file runs, the modules it imports from NVIDIA's package are these, and registering reaches us."""
    tags = {tag.upper(): tag for tag in SLOTS} | {"LIBERO_PANDA": "libero_sim"}
    contents: dict[str, dict[str, Any]] = {
        "gr00t": {},
        "gr00t.configs": {},
        "gr00t.configs.data": {},
        "gr00t.configs.data.embodiment_configs": {"register_modality_config": register},
        "gr00t.data": {},
        "gr00t.data.embodiment_tags": {"EmbodimentTag": Enum("EmbodimentTag", tags)},
        "gr00t.data.types": _types(),
    }
    saved = {name: sys.modules.get(name) for name in contents}
    for name, values in contents.items():
        module = ModuleType(name)
        module.__spec__ = importlib.util.spec_from_loader(name, None)
        module.__path__ = []
        module.__dict__.update(values)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, original in saved.items():
            if original is None:
                del sys.modules[name]
            else:
                sys.modules[name] = original
