"""Where a model's upstream project behaves oddly: a table that documents it and that tests can check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Quirk:
    """One oddity.

    Attributes:
        name: short handle.
        upstream: what upstream does.
        here: what the model's package does by default.
        switch: settings that give upstream's behaviour; empty where nothing published depends on it.
    """

    name: str
    upstream: str
    here: str
    switch: Mapping[str, Any] = field(default_factory=dict)


def page(title: str, source: str, introduction: Sequence[str], quirks: Sequence[Quirk]) -> str:
    """The table as a Markdown page; `source` says how to write it and what to edit."""
    lines = [f"# {title}", "", f"<!-- {source} -->", "", *introduction, ""]
    lines += ["| name | upstream | here | upstream's behaviour with |", "|---|---|---|---|"]
    for quirk in quirks:
        switch = ", ".join(f"`{key}={_value(value)}`" for key, value in quirk.switch.items()) or "-"
        lines.append(f"| {quirk.name} | {quirk.upstream} | {quirk.here} | {switch} |")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
