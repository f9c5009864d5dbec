"""What goes wrong when training leaves the chip it was written for, and what ends it: a table that plugins fill.

A plugin's package may have a module `pitfalls` with `PITFALLS`, a tuple of `Pitfall`, and `ERRORS`, the tables its
`translate_error` uses besides the general one. `python -m vla_backend.pitfalls > docs/pitfalls.md` renews the page.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vla_backend.discovery import candidates
from vla_backend.host_errors import HOST
from vla_backend.known_error import KnownError

#: The distribution whose plugins the page covers; what else is installed must not change it.
OWN = "vla-backend"


@dataclass(frozen=True)
class Pitfall:
    """One failure.

    Attributes:
        id: letter of its list and number.
        title: one line.
        symptom: what one sees, with the original message.
        cause: why.
        guard: what makes it impossible, or why it is out of scope.
        code: the guard in the code, "module:attribute".
        errors: names of the `KnownError`s that name it when it happens all the same.
        checks: keys of the findings of `vla train` before the start, or variables.
        doctor: names of the lines of `vla doctor` that look for it.
        tests: pytest node ids; each meets the failure without the guard and passes with it, unless `limits` says what
            is missing.
        source: where it was met.
        limits: what the tests do not show, and why.
    """

    id: str
    title: str
    symptom: str
    cause: str
    guard: str
    code: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    doctor: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    source: str = ""
    limits: str = ""

    @property
    def in_scope(self) -> bool:
        """Whether this package meets the failure at all."""
        return bool(self.code or self.errors or self.checks or self.doctor)


def collect() -> tuple[tuple[Pitfall, ...], dict[str, tuple[KnownError, ...]]]:
    """All pitfalls, and the tables of known errors by plugin; "general" is the one that every backend uses."""
    pitfalls: list[Pitfall] = []
    errors: dict[str, tuple[KnownError, ...]] = {"general": HOST}
    for name, candidate in candidates().items():
        module = f"{candidate.target.partition(':')[0]}.pitfalls"
        if candidate.distribution != OWN or importlib.util.find_spec(module) is None:
            continue
        found = importlib.import_module(module)
        pitfalls += getattr(found, "PITFALLS", ())
        errors[name] = tuple(getattr(found, "ERRORS", ()))
    return tuple(pitfalls), errors


def markdown() -> str:
    """`docs/pitfalls.md` as text."""
    pitfalls, errors = collect()
    known = {error.name: error for table in errors.values() for error in table}
    lines = [_HEAD]
    for letter, title in _LISTS.items():
        lines += ["", f"## {letter}. {title}"]
        for pitfall in pitfalls:
            if pitfall.id.startswith(letter):
                lines += _detailed(pitfall, known) if letter != "C" else _short(pitfall, known)
    lines += ["", "## Error messages", "", _TABLES]
    for name, table in errors.items():
        lines += ["", f"### {name}", "", "| name | what | why | what to do, in this order |", "|---|---|---|---|"]
        lines += [f"| {_cells(error.name, error.what, error.why, error.remedy)} |" for error in table]
    return "\n".join(lines) + "\n"


_HEAD = """# Pitfalls

What went wrong when VLA models were trained on another chip than the one they were written for, and what ends it here:
a *guard*, with which it cannot happen through this package; a *detector*, which names it before the start or when it
happens all the same (`vla train` prints these texts, in English and Chinese); and a *test* that meets the original
failure without the guard and passes with it. Tests below `tests/ascend_sim` run on the simulated CANN, see
[ascend_simulation.md](ascend_simulation.md); those of ZeRO on DeepSpeed with the CPU.

This page is generated from the table that the code uses: `python -m vla_backend.pitfalls > docs/pitfalls.md`."""

_LISTS = {
    "A": "DiT4DiT on Ascend 910B, ZeRO-2 and ZeRO-3",
    "B": "GR00T N1.7 on Ascend 910B",
    "C": "From public issue trackers",
}

_TABLES = """What `translate_error` knows: a backend's own table, then the general one. The messages of the error and of
its causes are searched, the root cause first; the first line that matches answers. The original traceback stays."""


def _detailed(pitfall: Pitfall, known: dict[str, KnownError]) -> Iterator[str]:
    yield from ("", f"### {pitfall.id}. {pitfall.title}", "")
    yield f"- **Symptom** {pitfall.symptom}"
    yield f"- **Cause** {pitfall.cause}"
    yield f"- **Guard** {pitfall.guard} {_code(pitfall.code)}".rstrip()
    if pitfall.checks:
        yield f"- **Found before the start** {_code(pitfall.checks)}"
    if pitfall.doctor:
        yield f"- **`vla doctor`** {_code(pitfall.doctor)}"
    for error in (known[name] for name in pitfall.errors):
        yield f"- **Explained** as `{error.name}`: {error.what} {error.why} *{error.remedy}*"
        yield f"  {error.chinese}"
    yield f"- **Test** {_code(pitfall.tests)}"
    if pitfall.limits:
        yield f"- **Not shown** {pitfall.limits}"


def _short(pitfall: Pitfall, known: dict[str, KnownError]) -> Iterator[str]:
    yield from ("", f"**{pitfall.id}. {pitfall.title}** ({pitfall.source})", "")
    yield from (f"{pitfall.symptom} {pitfall.cause}", "")
    yield f"- {'Guard' if pitfall.in_scope else 'Out of scope'}: {pitfall.guard} {_code(pitfall.code)}".rstrip()
    if pitfall.checks:
        yield f"- Found before the start: {_code(pitfall.checks)}"
    if pitfall.doctor:
        yield f"- `vla doctor`: {_code(pitfall.doctor)}"
    if pitfall.errors:
        yield f"- Explained: {_code(known[name].name for name in pitfall.errors)}"
    if pitfall.tests:
        yield f"- Test: {_code(pitfall.tests)}"
    if pitfall.limits:
        yield f"- Not shown: {pitfall.limits}"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cells(*texts: str) -> str:
    return " | ".join(text.replace("|", "\\|") for text in texts)


if __name__ == "__main__":
    print(markdown(), end="")
