"""From plain values to dataclasses, collecting every unknown key and wrong type on the way.

OmegaConf's structured configurations stop at the first mistake, turn 5 into "5", and know no nearest name.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, Union

from vla_train.config.errors import Problem

MISSING: Final = "???"
_SCIENTIFIC: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
_WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}

Where = Callable[[str], tuple[str, str | None]]
"""For a key: where its value came from, and its text if it was typed as a single value."""


class WrongType(Exception):
    """The value does not fit the annotation."""


class Builder:
    """Turns a tree of plain values into dataclasses; `problems` fills up instead of an exception being raised."""

    def __init__(self, where: Where, all_keys: tuple[str, ...] = ()) -> None:
        self.where = where
        self.all_keys = all_keys
        self.problems: list[Problem] = []

    def build(self, cls: type, tree: Mapping[str, Any], prefix: str = "") -> Any:
        """An instance of the dataclass `cls`; fields in error are left at a placeholder."""
        hints = typing.get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
        for key in tree:
            if key not in fields:
                self._unknown(prefix, str(key), list(fields))
        values: dict[str, Any] = {}
        for name, field in fields.items():
            path = f"{prefix}{name}"
            if name in tree:
                values[name] = self._value(tree[name], hints[name], path)
            elif _has_default(field):
                continue
            elif dataclasses.is_dataclass(hints[name]):
                values[name] = self._value({}, hints[name], path)
            else:
                values[name] = self._value(MISSING, hints[name], path)
        try:
            made = cls(**values)
        except (ValueError, TypeError) as error:
            # A check of the class itself; with a value already found wrong it would only repeat that finding.
            if not any(problem.key.startswith(prefix) for problem in self.problems):
                self.problems.append(Problem(prefix.rstrip("."), str(error), source=self.where(prefix.rstrip("."))[0]))
            return None
        for name in fields:
            # A default of "???" marks a required value, as in OmegaConf.
            if name not in tree and getattr(made, name) == MISSING and _has_default(fields[name]):
                self._value(MISSING, hints[name], f"{prefix}{name}")
        return made

    def _value(self, value: Any, hint: Any, path: str) -> Any:
        source, text = self.where(path)
        if isinstance(value, str) and value == MISSING:
            self.problems.append(Problem(path, "required, but not set", f"add {path}=...", source))
            return None
        try:
            return self._convert(value, hint, path, text)
        except WrongType:
            self.problems.append(
                Problem(path, f"is {value!r}, expected {describe(hint)}", _hint_for(value, hint), source)
            )
            return value

    def _convert(self, value: Any, hint: Any, path: str, text: str | None) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is Any:
            return value
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise WrongType
            return self.build(typing.cast("type", hint), value, f"{path}.")
        if origin in (Union, types.UnionType):
            return self._convert_union(value, arguments, path, text)
        if origin is Literal:
            if value not in arguments:
                raise WrongType
            return value
        if origin is list and isinstance(value, (list, tuple)):
            return [self._value(item, arguments[0], f"{path}[{i}]") for i, item in enumerate(value)]
        if origin is tuple and isinstance(value, (list, tuple)):
            return tuple(self._value(item, arguments[0], f"{path}[{i}]") for i, item in enumerate(value))
        if origin is dict and isinstance(value, Mapping):
            return {str(key): self._value(item, arguments[1], f"{path}.{key}") for key, item in value.items()}
        if isinstance(hint, type) and origin is None:
            return _scalar(value, hint, text)
        raise WrongType

    def _convert_union(self, value: Any, alternatives: tuple[Any, ...], path: str, text: str | None) -> Any:
        if value is None and type(None) in alternatives:
            return None
        for alternative in alternatives:
            if alternative is type(None):
                continue
            try:
                return self._convert(value, alternative, path, text)
            except WrongType:
                continue
        raise WrongType

    def _unknown(self, prefix: str, key: str, siblings: list[str]) -> None:
        near = [prefix + name for name in difflib.get_close_matches(key, siblings, n=1)]
        # A right name in the wrong section is the other common mistake.
        near = near or [path for path in self.all_keys if path.rpartition(".")[2] == key]
        near = near or difflib.get_close_matches(f"{prefix}{key}", self.all_keys, n=1)
        allowed = "known here: " + ", ".join(sorted(siblings))
        remedy = f"did you mean '{near[0]}'?" if near else allowed
        self.problems.append(Problem(f"{prefix}{key}", "unknown key", remedy, self.where(f"{prefix}{key}")[0]))


def _scalar(value: Any, hint: type, text: str | None) -> Any:
    if hint is float and isinstance(value, str) and _SCIENTIFIC.fullmatch(value):
        return float(value)
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint is str and isinstance(value, (int, float)) and text is not None:
        # `run.id=0425` on the command line means the text, not the number YAML makes of it.
        return text
    if type(value) is not hint:
        raise WrongType
    return value


def _hint_for(value: Any, hint: Any) -> str:
    if isinstance(value, (int, float)) and hint is str:
        return f"write '{value}' in quotes"
    if isinstance(value, str) and typing.get_origin(hint) is list:
        return f"write [{value}]"
    return ""


def describe(hint: Any) -> str:
    """An annotation in words: "null or a list of numbers"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in (list, tuple):
        return f"a list ({describe(arguments[0])} each)"
    if origin is dict:
        return f"a mapping ({describe(arguments[1])} each)"
    if dataclasses.is_dataclass(hint):
        return "a section of keys"
    return "anything" if hint is Any else _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def defaults(cls: type) -> dict[str, Any]:
    """The default values of a dataclass as a tree of plain values; "???" where there is none."""
    hints = typing.get_type_hints(cls)
    tree: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        if field.default is not dataclasses.MISSING:
            value: Any = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = defaults(hints[field.name]) if dataclasses.is_dataclass(hints[field.name]) else MISSING
        tree[field.name] = plain(value)
    return tree


def plain(value: Any) -> Any:
    """Dataclasses, tuples and mappings as dictionaries and lists that YAML can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted path; lists of plain values and empty mappings are one value."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{prefix}[{index}]")
    else:
        yield prefix, tree


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
