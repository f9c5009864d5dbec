"""What a check found, and how it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (ERROR, WARNING, NOTE)

_SHOWN = 3  # findings of one kind in the text


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        severity: "error": training would stop or learn something false; "warning": it goes on with the right data, but
            somebody should know; "note": nothing is wrong.
        kind: short name; findings of one kind are shown together.
        file: relative to the dataset's folder.
        what: what is wrong.
        remedy: what to do; empty for a note.
    """

    severity: str
    kind: str
    file: str
    what: str
    remedy: str = ""


@dataclass
class Report:
    """Everything that was found in one dataset.

    Attributes:
        path: folder of the dataset.
        facts: what it holds: format, episodes, frames, fps, cameras.
        findings: the worst first.
    """

    path: str
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def count(self, severity: str) -> int:
        """Number of findings of that severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == ERROR]

    def sort(self) -> None:
        """The worst first; within a severity kinds stay together, in the order found."""
        order = {kind: i for i, kind in enumerate(dict.fromkeys(finding.kind for finding in self.findings))}
        self.findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), order[finding.kind]))

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        counts = {f"{severity}s": self.count(severity) for severity in SEVERITIES}
        return {
            "path": self.path,
            **self.facts,
            **counts,
            "findings": [asdict(finding) for finding in self.findings],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Report:
        """The inverse of `as_json`."""
        derived = {"path", "findings", *(f"{severity}s" for severity in SEVERITIES)}
        facts = {key: value for key, value in raw.items() if key not in derived}
        return cls(raw["path"], facts, [Finding(**entry) for entry in raw["findings"]])


def describe(findings: Iterable[Finding]) -> list[str]:
    """Lines for people: one block per kind, with its first examples, how many more there are, and the remedy."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.kind), []).append(finding)
    lines: list[str] = []
    for (severity, _), group in kinds.items():
        label = f"{severity:<8}"
        for finding in group[:_SHOWN]:
            lines.append(f"{label}{finding.file}: {finding.what}")
            label = f"{'':<8}"
        if len(group) > _SHOWN:
            lines.append(f"{label}... and {len(group) - _SHOWN} more like this")
        for remedy in dict.fromkeys(finding.remedy for finding in group[:_SHOWN] if finding.remedy):
            lines.append(f"{'':<8}-> {remedy}")
    return lines
