"""A process that runs checks: `python -m vla_train.conformance.session FILE`, started by `runner`.

FILE holds the candidate, the names of the checks and the folder; results go to `results-RANK.jsonl` there, one line
when a check begins and one when it ends, so that a crash or a hang is the check's that had begun.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vla_backend import Candidate
from vla_backend.errors import BackendError
from vla_train.conformance.checks import Check, Result, Skip, catalogue
from vla_train.conformance.subject import Subject
from vla_train.train.world import leave


def run_here(
    subject: Subject, checks: Sequence[Check], begin: Callable[[Check], None] = lambda _: None
) -> Iterator[Result]:
    """Run checks in this process, one after the other.

    With two ranks everything after a failure is skipped: ranks that have lost step would wait for each other.
    """
    lost = ""
    for one in checks:
        begin(one)
        started = time.perf_counter()
        if lost:
            yield Result(one.tier, one.name, "skipped", f"the ranks lost step in '{lost}'", 0.0)
            continue
        try:
            outcome, message = "passed", one.function(subject) or ""
        except Skip as reason:
            outcome, message = "skipped", str(reason)
        except BackendError as error:
            outcome, message = "failed", str(error)
        except Exception as error:
            outcome, message = "failed", _unexpected(one, error, subject)
        if outcome == "failed" and one.stage == "ranks":
            lost = one.name
        yield Result(one.tier, one.name, outcome, message, time.perf_counter() - started)  # type: ignore[arg-type]


def _unexpected(one: Check, error: Exception, subject: Subject) -> str:
    """An exception that no check foresaw, with the deepest line of the plugin, else of anyone, that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if subject.package in frame.filename]
    at = (own or frames)[-1]
    text = str(error).strip().partition("\n")[0]
    lines = [f"{one.says or one.name} Instead: {type(error).__name__}: {text}"]
    lines.append(f"  why: raised at {at.filename}:{at.lineno}, {at.line}")
    try:
        known = subject.backend.translate_error(error)
    except Exception:
        return "\n".join(lines)
    if known.known:
        lines.append(f"  fix: {known.what} {known.why} {known.remedy}")
    return "\n".join(lines)


def main(path: str) -> None:
    """Run what the file says and write results."""
    order = json.loads(Path(path).read_text())
    folder = Path(order["folder"])
    checks = [catalogue()[key] for key in order["checks"]]
    subject = Subject(Candidate(**order["candidate"]), folder)
    with (folder / f"results-{os.environ.get('RANK', '0')}.jsonl").open("a") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        outcomes = set()
        for result in run_here(subject, checks, lambda one: write({"begin": one.key})):
            write({"result": asdict(result)})
            outcomes.add(result.outcome)
    # As the trainer does: a library whose threads are still in a group may abort the interpreter's end. Ranks that
    # have lost each other just end, leaving could wait for the peer.
    if "failed" not in outcomes and not any(one.may_end_process for one in checks):
        leave()


def survey(candidate: Candidate) -> dict[str, Any]:
    """Whether the hardware is here, and the environment that the launcher would add."""
    from vla_train.conformance.samples import PATIENT, SHORT, config

    subject = Subject(candidate, Path())
    try:
        backend = subject.backend
        probe = backend.probe()
        env = {
            limit: backend.env_defaults(config(processes=2, dist_timeout=limit), os.environ)
            for limit in (PATIENT, SHORT)
        }
    except Exception as error:
        return {"error": str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"}
    return {"probe": asdict(probe), "env": env}


if __name__ == "__main__":
    if sys.argv[1] == "--survey":
        print("\n" + json.dumps(survey(Candidate(**json.loads(sys.argv[2])))))
    else:
        main(sys.argv[1])
