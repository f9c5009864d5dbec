"""A small model known to the configuration only, so that these tests import no torch."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from vla_train import models
from vla_train.models import ModelEntry


@dataclass
class HeadConfig:
    """The head.

    Attributes:
        layers: blocks.
        dtype: storage of the weights.
    """

    layers: int = 2
    dtype: str = "float32"


@dataclass
class ToyConfig:
    """A toy.

    Attributes:
        name: "toy".
        width: units.
        rate: a probability, or null.
        head: the head.
    """

    name: str = "toy"
    width: int = 8
    rate: float | None = None
    head: HeadConfig = field(default_factory=HeadConfig)

    def validate(self) -> None:
        if self.width < 1:
            raise ValueError(f"model.width is {self.width}; it must be at least 1")


def translate(raw: dict[str, Any]) -> dict[str, Any] | None:
    if "framework" not in raw:
        return None
    tree: dict[str, Any] = {"run": {"id": raw.get("run_id", "run")}, "model": {"name": "toy"}}
    if "width" in raw["framework"]:
        tree["model"]["width"] = raw["framework"]["width"]
    if "max_train_steps" in raw.get("trainer", {}):
        tree["train"] = {"max_steps": raw["trainer"]["max_train_steps"]}
    tree["data"] = {"datasets": [{"path": name} for name in raw.get("datasets", {}).get("names", ["a"])]}
    return tree


ENTRY = ModelEntry(name="toy", config_class=ToyConfig, build="", dataset="", collate="", translate=translate)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("toy_model_package")
    module.entry = ENTRY  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_model_package", module)
    point = metadata.EntryPoint("toy", "toy_model_package:entry", models.GROUP)
    monkeypatch.setattr(models, "entries", lambda: {"toy": point})
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)


@pytest.fixture
def write(tmp_path: Path):
    """Write a YAML file and answer its path."""

    def written(text: str, name: str = "config.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


@pytest.fixture
def base(write) -> Path:
    return write("run: {id: demo}\ndata:\n  datasets:\n    - path: a\n")
