"""Settings on the command line: `key=value`, and the `--key value` style of DiT4DiT's own scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vla_train.config.errors import Problem
from vla_train.config.sources import Sources

NATIVE: Final = ("backend", "run", "model", "data", "train", "parallel", "eval")
_NATIVE_ASSIGNMENT: Final = re.compile(rf"({'|'.join(NATIVE)})([.\[][^=]*)?=")


@dataclass(frozen=True)
class Override:
    """One setting: `key` is dotted, `text` the value as typed, `token` what stood on the command line."""

    key: str
    text: str
    token: str

    @property
    def value(self) -> Any:
        """The value as YAML reads it: a number, `null`, a list, ...; raises `yaml.YAMLError`."""
        parsed: Any = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={self.text}"]))
        return parsed["value"]

    @property
    def dotlist(self) -> str:
        return f"{self.key}={self.text}"

    @property
    def native(self) -> bool:
        return re.split(r"[.\[]", self.key, maxsplit=1)[0] in NATIVE


def parse(arguments: Sequence[str]) -> tuple[list[Override], list[str]]:
    """Read overrides in order; the second answer lists arguments that are none.

    `--key value` sets a value, `--key=value` too, `--key` alone means `true`. What follows `--key` is its value unless
    it begins with `--` (`-3` is a value) or assigns to a section of the configuration (`train.max_steps=3`).
    """
    found: list[Override] = []
    stray: list[str] = []
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        key, assigned, text = token.removeprefix("--").partition("=")
        if token.startswith("--") and not assigned:
            if rest and not rest[0].startswith("--") and not _NATIVE_ASSIGNMENT.match(rest[0]):
                text = rest.pop(0)
                token = f"{token} {text}"
            else:
                text = "true"
        elif not assigned:
            stray.append(token)
            continue
        found.append(Override(key, text, token))
    return found, stray


def expand(settings: Sequence[Override], options: Mapping[str, Callable[[str], Sequence[str]]]) -> list[Override]:
    """Settings with the options of a model (`--base-model X`, with - or _) replaced by what they stand for."""
    found: list[Override] = []
    for setting in settings:
        option = None if setting.native else options.get(setting.key.replace("_", "-"))
        if option is None:
            found.append(setting)
            continue
        for assignment in option(setting.text):
            key, _, text = assignment.partition("=")
            found.append(Override(key, text, setting.token))
    return found


def apply(tree: Any, settings: Sequence[Override], sources: Sources | None = None) -> list[Problem]:
    """Merge overrides into an OmegaConf tree in their order; answers those that cannot be applied."""
    problems: list[Problem] = []
    for setting in settings:
        source = f"override '{setting.token}'"
        try:
            value = setting.value
            OmegaConf.update(tree, setting.key, value)
        except (OmegaConfBaseException, yaml.YAMLError, IndexError, TypeError, ValueError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            problems.append(Problem(setting.key, f"cannot be set: {reason}", "quote values with special signs", source))
            continue
        if sources is not None:
            sources.mark(setting.key, source, value, setting.text)
    return problems
