"""One look at a plugin in a fresh process: `python -m vla_train.conformance.cold CANDIDATE-AS-JSON`, answers JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from vla_backend import Candidate
from vla_backend.activation import register


def look(candidate: Candidate) -> dict[str, Any]:
    """Load and register the plugin and ask who it is, as `vla backends` does; the contract itself is not measured."""
    before, started = set(sys.modules), time.perf_counter()
    manager = register(candidate)
    manager.hook.backend_info()
    seconds = time.perf_counter() - started
    loaded = set(sys.modules)
    # Imported only now, so that nothing of the kit is counted.
    from pathlib import Path

    from vla_train.conformance.subject import Subject
    from vla_train.conformance.tour import answers
    from vla_train.conformance.watch import offenders

    named = [name for name in offenders(before) if any(module.partition(".")[0] == name for module in loaded - before)]
    if named:
        return {"seconds": seconds, "offenders": named, "answers": {}}
    return {"seconds": seconds, "offenders": [], "answers": answers(Subject(candidate, Path()))}


if __name__ == "__main__":
    print("\n" + json.dumps(look(Candidate(**json.loads(sys.argv[1])))))
