"""Printing a configuration with the source of every value."""

from __future__ import annotations

import json
from typing import Any

import yaml

from vla_train.config.schema import Config
from vla_train.config.sources import DEFAULT, Sources
from vla_train.config.typed import leaves, plain


def as_text(config: Config, sources: Sources, changed_only: bool = False) -> str:
    """One line per value: `key: value  # source`, in the order of the sections."""
    rows = [
        (f"{key}: {_inline(value)}", sources.of(key))
        for key, value in leaves(plain(config))
        if not changed_only or not sources.of(key).startswith(DEFAULT)
    ]
    width = min(max((len(left) for left, _ in rows), default=0), 72)
    return "\n".join(f"{left:<{width}}  # {source}" for left, source in rows)


def as_json(config: Config, sources: Sources) -> str:
    """`{"key": {"value": ..., "source": ...}}`."""
    return json.dumps(
        {key: {"value": value, "source": sources.of(key)} for key, value in leaves(plain(config))}, indent=2
    )


def _inline(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("\n...").strip()
