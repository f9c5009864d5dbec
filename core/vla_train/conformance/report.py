"""Results for people and for programs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vla_backend import API, Candidate
from vla_train.conformance.checks import TIERS, Check, Result, catalogue

_WIDTHS = (12, 35, 7, 7)

_BEGIN, _END = "<!-- checks -->", "<!-- /checks -->"


def header() -> str:
    return _cells("TIER", "CHECK", "OUTCOME", "SECONDS") + "  REMARK"


def row(result: Result) -> str:
    """One line of the table, and the rest of a message under it."""
    first, *rest = result.message.splitlines() or [""]
    outcome = result.outcome.upper() if result.outcome == "failed" else result.outcome
    line = f"{_cells(result.tier, result.name, outcome, f'{result.seconds:.2f}')}  {first}".rstrip()
    return "\n".join([line, *(f"{'':{_WIDTHS[0] + 2}}{text}" for text in rest)])


def summary(name: str, results: Sequence[Result]) -> str:
    """The last line: what came of it all."""
    counts = Counter(result.outcome for result in results)
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
    if counts["failed"]:
        verdict = "does not conform"
    elif counts["passed"]:
        verdict = "conforms in all that could be checked here" if counts["skipped"] else "conforms"
    else:
        verdict = "could not be checked here"
    return f"{name}: {said}; the plugin {verdict}"


def listing(checks: Sequence[Check]) -> str:
    """Every check with what it proves."""
    return "\n".join(f"{one.tier:<{_WIDTHS[0]}}  {one.name:<{_WIDTHS[1]}}  {one.says}" for one in checks)


def reference() -> str:
    """A Markdown table per tier of every check with what it proves."""
    lines: list[str] = []
    for tier in TIERS:
        lines += [f"### {tier}", "", "| check | proves |", "|---|---|"]
        lines += [f"| `{one.name}` | {one.says} |" for one in catalogue().values() if one.tier == tier]
        lines.append("")
    return "\n".join(lines)


def write_reference(page: Path) -> None:
    """Put the tables into a page between its markers: `python -m vla_train.conformance.report PAGE`."""
    before, _, rest = page.read_text(encoding="utf-8").partition(f"{_BEGIN}\n")
    after = rest.partition(_END)[2]
    page.write_text(f"{before}{_BEGIN}\n{reference()}{_END}{after}", encoding="utf-8")


def write_json(path: Path, candidate: Candidate, results: Sequence[Result]) -> None:
    """The results with the plugin's origin and the generation of the contract that it was checked against."""
    content = {
        "plugin": candidate.name,
        "distribution": candidate.distribution,
        "version": candidate.version,
        "api": API,
        "conforms": not any(result.outcome == "failed" for result in results),
        "results": [asdict(result) for result in results],
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _cells(*texts: str) -> str:
    return "  ".join(f"{text:<{width}}" for text, width in zip(texts, _WIDTHS, strict=True))


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
