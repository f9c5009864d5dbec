"""Reading single values out of a configuration that may lack whole sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def setting(config: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The value at the dotted `path`; `default` if a section or the key is missing or null."""
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, Mapping) or value.get(key) is None:
            return default
        value = value[key]
    return value
