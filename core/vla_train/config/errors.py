"""The one error that lists everything wrong with a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vla_backend.errors import BackendError


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration.

    Attributes:
        key: dotted path of the setting, or "" when it is about a whole file.
        message: what is wrong.
        remedy: what to do.
        source: file and line, or the override, that the setting came from.
    """

    key: str
    message: str
    remedy: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.key}{where}: {self.message}{remedy}" if self.key else f"{self.message}{where}{remedy}"


class ConfigError(BackendError):
    """A configuration that cannot be used; `problems` holds every finding."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.problems = list(problems)


def raise_if(problems: Sequence[Problem]) -> None:
    """Raise one `ConfigError` that lists all `problems`, if there are any."""
    if problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        raise ConfigError(
            "\n  - ".join([f"The configuration has {count}:", *map(str, problems)]),
            fix="docs/configuration.md lists every key; `vla config show` prints the effective values",
            problems=problems,
        )
