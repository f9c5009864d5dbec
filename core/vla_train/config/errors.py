"""The one error that lists everything wrong with a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vla_backend.errors import BackendError
from vla_backend.explain import HOST, explain


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration.

    Attributes:
        key: dotted path of the setting, or "" when it is about a whole file.
        message: what is wrong.
        remedy: what to do.
        source: file and line, or the override, that the setting came from.
        chinese: the same once more, one paragraph; "" if nobody has written it.
    """

    key: str
    message: str
    remedy: str = ""
    source: str = ""
    chinese: str = ""

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
            "\n  - ".join([f"The configuration has {count}:", *map(_both_languages, problems)]),
            fix="docs/configuration.md lists every key; `vla config show` prints the effective values",
            problems=problems,
        )


def _both_languages(problem: Problem) -> str:
    """The problem, and below it the same in Chinese where its finder or the table of known errors has it."""
    chinese = problem.chinese or explain(RuntimeError(str(problem)), HOST).chinese
    return str(problem) + (f"\n    中文: {chinese}" if chinese else "")
