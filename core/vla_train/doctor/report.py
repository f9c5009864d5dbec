"""How the checks are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from vla_backend.health import Check

_WIDTH = 14


def line(check: Check) -> str:
    """One line for a finding, and one for its remedy."""
    text = f"{check.outcome:<8}{check.name:<{_WIDTH}}{check.detail}"
    return f"{text}\n{'':{8 + _WIDTH}}-> {check.remedy}" if check.remedy and check.outcome != "ok" else text


def passed(checks: Sequence[Check]) -> bool:
    """Nothing failed."""
    return all(check.outcome != "failed" for check in checks)


def summary(checks: Sequence[Check], seconds: float) -> str:
    """The last line."""
    counts = {outcome: sum(check.outcome == outcome for check in checks) for outcome in ("ok", "warning", "failed")}
    verdict = "ready to train" if passed(checks) else "not ready"
    parts = f"{counts['ok']} ok, {counts['warning']} warnings, {counts['failed']} failed"
    return f"{verdict}: {parts}, in {seconds:.0f} s"


def as_json(backend: str, checks: Sequence[Check], seconds: float) -> str:
    """Everything, for programs."""
    found = {"ok": passed(checks), "backend": backend, "seconds": round(seconds, 1)}
    return json.dumps({**found, "checks": [asdict(check) for check in checks]}, indent=2)
