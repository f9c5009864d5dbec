"""The field reference in docs/configuration.md, generated from the dataclasses: `python -m vla_train.config.reference`.

A page asks for a table with `<!-- fields KEY MODULE:CLASS -->`; what follows up to `<!-- end -->` is replaced.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

from vla_train.config.typed import MISSING, defaults, describe

_BLOCK = re.compile(r"(<!-- fields (\S*) (\S+):(\S+) -->\n).*?(<!-- end -->)", re.S)


def attributes(cls: type) -> dict[str, str]:
    """The "Attributes" of a Google-style docstring: text by name; `a, b: text` documents both."""
    text = inspect.getdoc(cls) or ""
    _, _, section = text.partition("Attributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        head = re.fullmatch(r" {4}(\w+(?:, \w+)*): (.*)", line)
        if head:
            names = head.group(1).split(", ")
            found.update(dict.fromkeys(names, head.group(2)))
        elif line.startswith(" " * 8):
            for name in names:
                found[name] += " " + line.strip()
        elif line.strip():
            break
    return found


def rows(cls: type, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, type in words, default and description of every field, sections spelt out."""
    hints, documented, values = typing.get_type_hints(cls), attributes(cls), defaults(cls)
    for field in dataclasses.fields(cls):
        hint, key = hints[field.name], f"{prefix}{field.name}"
        section = _section(hint)
        if dataclasses.is_dataclass(hint):
            yield from rows(typing.cast("type", hint), f"{key}.")
            continue
        yield key, describe(hint), _default(values[field.name]), documented.get(field.name, "")
        if section is not None:
            item, place = section
            yield from rows(item, f"{key}{place}.")


def _section(hint: Any) -> tuple[type, str] | None:
    """The dataclass that a list or mapping holds, and how its place is written."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return next((found for found in map(_section, arguments) if found), None)
    if origin in (list, dict) and dataclasses.is_dataclass(arguments[-1]):
        return typing.cast("type", arguments[-1]), "[i]" if origin is list else ".<name>"
    return None


def _default(value: Any) -> str:
    return "required" if value == MISSING else f"`{json.dumps(value)}`"


def table(cls: type, prefix: str = "") -> str:
    """A Markdown table of the fields of `cls`."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, kind, default, text in rows(cls, prefix):
        cells = [f"`{key}`", kind, default, text.replace("|", "\\|")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def fill(page: str) -> str:
    """The page with every table brought up to date."""

    def filled(match: re.Match[str]) -> str:
        start, key, module, name, end = match.groups()
        cls = getattr(importlib.import_module(module), name)
        return f"{start}{table(cls, f'{key}.')}{end}"

    return _BLOCK.sub(filled, page)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:] or ["docs/configuration.md"]):
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
