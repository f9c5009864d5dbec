"""Where each value of a configuration came from."""

from __future__ import annotations

import re
from typing import Any

import yaml
from omegaconf import OmegaConf

from vla_train.config.typed import leaves

DEFAULT = "default"


class Sources(dict[str, str]):
    """Source by dotted key, for values that something other than a default set.

    Attributes:
        model: name of the model, whose defaults are the source of the other `model.` values.
        texts: what was typed for a key that an override set, exactly.
        notes: remarks for the user, e.g. settings without effect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model = ""
        self.texts: dict[str, str] = {}
        self.notes: list[str] = []

    def mark(self, key: str, source: str, value: Any = None, text: str | None = None) -> None:
        """Say that `source` set `key` to `value`, which may be a whole section."""
        for path, leaf in leaves(value, key):
            for older in [name for name in self if _inside(name, path) and not isinstance(leaf, dict)]:
                del self[older]
            self[path] = source
            self.texts.pop(path, None)
            if text is not None and path == key:
                self.texts[path] = text

    def where(self, key: str) -> tuple[str, str | None]:
        """Source of `key`, or of the nearest section around it, and the text typed for exactly this key."""
        path = key
        while path:
            if path in self:
                return self[path], self.texts.get(key)
            path = re.sub(r"(\.[^.\[]*|\[\d+\]|^[^.\[]+)$", "", path)
        inside = next((source for name, source in self.items() if _inside(name, key)), None)
        return inside or "", None

    def of(self, key: str) -> str:
        """Source of `key` in words, the default included."""
        source = self.where(key)[0]
        if source:
            return source
        return f"{DEFAULT} of model {self.model}" if key.startswith("model.") and self.model else DEFAULT


def _inside(key: str, section: str) -> bool:
    return key == section or key.startswith((f"{section}.", f"{section}["))


def line_numbers(text: str) -> dict[str, int]:
    """Line of every key of a YAML text by dotted path."""
    found: dict[str, int] = {}

    def walk(node: yaml.Node, path: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                child = f"{path}.{key.value}" if path else str(key.value)
                found[child] = key.start_mark.line + 1
                walk(value, child)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                found[f"{path}[{index}]"] = item.start_mark.line + 1
                walk(item, f"{path}[{index}]")

    root = yaml.compose(text)
    if root is not None:
        walk(root, "")
    return found


def read_yaml(text: str) -> Any:
    """A YAML text as OmegaConf reads it: `1e-5` is a number, a key given twice an error."""
    return OmegaConf.create(text)
