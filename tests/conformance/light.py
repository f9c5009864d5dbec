"""Mistakes before torch in one process without torch: `python -m tests.conformance.light CLASS...` answers JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from vla_backend import Candidate
from vla_train.conformance.checks import select
from vla_train.conformance.session import run_here
from vla_train.conformance.subject import Subject


def main(names: list[str]) -> dict[str, list[dict[str, object]]]:
    checks = [one for one in select(["contract"]) if one.stage == "light"]
    found = {}
    for name in names:
        candidate = Candidate(name.rpartition(":")[2], "vla-broken", "1.0", name)
        found[name] = [asdict(result) for result in run_here(Subject(candidate, Path()), checks)]
        assert "torch" not in sys.modules
    return found


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1:])))
