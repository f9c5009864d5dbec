"""Contract, before torch: what a launcher, `vla backends` and the automatic choice rely on."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from functools import cache
from types import ModuleType
from typing import Any, Final

from vla_backend.activation import plugin_modules
from vla_backend.errors import BackendError
from vla_backend.hookspecs import SPECS
from vla_backend.markers import PROJECT
from vla_train.conformance import tour
from vla_train.conformance.answers import complaints
from vla_train.conformance.checks import Failure, Skip, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import Call, short
from vla_train.conformance.watch import watching

COLD_SECONDS: Final = 0.2
COLD_RUNS: Final = 3
_CHILD_SECONDS: Final = 20


@cache
def _calls(subject: Subject) -> list[Call]:
    _ = subject.backend
    return tour.tour(subject)


@check("light")
def registers(subject: Subject) -> None:
    """The plugin loads, implements every required hook, and no hook that the specifications do not have."""
    _ = subject.backend


@check("light")
def every_hook_is_marked(subject: Subject) -> None:
    """No function is named like a hook and lacks @hookimpl, which would leave the default in charge in silence."""
    _ = subject.backend
    for _, plugin in plugin_modules(subject.candidate):
        for name in SPECS:
            found = getattr(plugin, name, None)
            if not callable(found) or isinstance(found, ModuleType) or hasattr(found, f"{PROJECT}_impl"):
                continue
            if getattr(found, "__module__", "").startswith(subject.package):
                raise Failure(
                    f"'{name}' is named like a hook and is not marked as one.",
                    why="the host does not see it, and the generic default answers instead",
                    fix=f"put @hookimpl above {found.__module__}.{name}, or rename it",
                )


@check("light")
def cold_import(subject: Subject) -> str:
    """In a fresh process the plugin loads neither torch nor a vendor's package, within 200 ms (best of three)."""
    _ = subject.backend
    looks = []
    for run in range(COLD_RUNS):
        looks.append(_cold(subject, run))
        if looks[-1]["offenders"]:
            names = ", ".join(looks[-1]["offenders"])
            raise Failure(
                f"Importing the plugin imports {names}.",
                why="plugins are listed and probed before torch, on machines without the chip",
                fix="import it inside the functions that need it",
            )
        best = min(look["seconds"] for look in looks)
        if best < COLD_SECONDS:
            return f"{best * 1000:.0f} ms"
    raise Failure(
        f"Importing the plugin takes {best * 1000:.0f} ms, the limit is {COLD_SECONDS * 1000:.0f} ms.",
        why="every `vla` command that lists backends pays it",
        fix="move slow imports and calls from the top of the module into the functions that need them",
    )


@check("light")
def phases(subject: Subject) -> None:
    """No hook before torch imports torch or a vendor's package."""
    for call in _calls(subject):
        if call.imported:
            raise Failure(
                f"The hook '{call.hook}' imports {', '.join(call.imported)}.",
                why=f"it belongs to the phase {SPECS[call.hook].phase}, in which {call} was asked",
                fix="look at files, environment and package metadata instead (vla_backend.installed helps)",
            )


@check("light")
def answers(subject: Subject) -> str:
    """Every hook before torch answers what its specification says; `None` is no answer."""
    calls = _calls(subject)
    for call in calls:
        if call.error is not None and not call.imported:
            raise _raised(call)
        for mistake, remedy in complaints(call.hook, call.arguments, call.answer) if call.error is None else ():
            raise Failure(f"{call.hook}: {mistake}.", why=f"{call} answered {short(call.answer)}", fix=remedy)
    return f"{len({call.hook for call in calls})} hooks, {len(calls)} questions"


@check("light")
def answers_are_stable(subject: Subject) -> None:
    """The same question gets the same answer."""
    for call in _calls(subject):
        if call.error is None and not isinstance(call.answer, BackendError) and call.answer != call.again:
            raise Failure(
                f"{call.hook} answers the same question differently.",
                why=f"{call} answered {short(call.answer)}, then {short(call.again)}",
                fix="let the answer depend on the arguments and the machine only; launcher and ranks must agree",
            )


@check("light")
def arguments_are_untouched(subject: Subject) -> None:
    """No hook changes the configuration or the environment that it is given."""
    for call in _calls(subject):
        if call.changed:
            raise Failure(
                f"{call.hook} changes its argument in place.",
                why=f"argument {call.changed[0] + 1} is now {short(call.arguments[call.changed[0]])}",
                fix="copy.deepcopy it, and answer the copy where an answer is wanted",
            )


@check("light")
def environment_is_untouched(subject: Subject) -> None:
    """No hook before torch changes os.environ."""
    for call in _calls(subject):
        if call.environment:
            raise Failure(
                f"{call.hook} changes os.environ: {', '.join(call.environment)}.",
                why="the launcher shows what it sets, and gives it to the child processes only",
                fix="answer the variables from env_defaults",
            )


@check("light")
def absent_hardware(subject: Subject) -> str:
    """With an empty environment, or a mask that hides every device, `probe` says no with reason and remedy."""
    with watching() as seen:
        probe, mask = subject.call("probe"), subject.backend.visible_devices_env
        asked: list[dict[str, str]] = [{}]
        asked += [{**os.environ, mask: value} for value in ("", "nonsense")] if mask else []
        for env in asked:
            said = f"{mask}={env[mask]!r}" if mask in env else "an empty environment"
            try:
                answer = probe(env)
            except Exception as error:
                if seen.imported:
                    raise Skip("probe imports what it may not, see 'phases'") from error
                raise Failure(
                    f"probe raises where the hardware is absent: {type(error).__name__}: {short(error)}.",
                    why=f"asked with {said}",
                    fix="answer Probe(ok=False, reason=..., remedy=...)",
                ) from error
            for mistake, remedy in complaints("probe", (env,), answer):
                raise Failure(f"probe: {mistake}.", why=f"with {said} it answered {short(answer)}", fix=remedy)
            if env.get(mask) == "" and answer.ok and not answer.shared:
                raise Failure(
                    "probe says yes although the mask hides every device.",
                    why=f"with {said} it answered {short(answer)}",
                    fix="count the devices that the mask in `env` leaves; `env` is the argument, not os.environ",
                )
    return f"with {mask}" if mask else "the chip has no mask"


@check("light")
def fork_and_spawn(subject: Subject) -> None:
    """A forked child and a fresh process get the same answers as their parent."""
    here = tour.answers(subject)
    _compare(here, _in_fork(subject), "a forked child")
    _compare(here, _cold(subject)["answers"], "a fresh process")


def _compare(here: dict[str, str], there: dict[str, str], where: str) -> None:
    for question, answer in here.items():
        if there.get(question) != answer:
            raise Failure(
                f"{question.partition(' ')[0]} answers differently in {where}.",
                why=f"{short(answer)} here, {short(there.get(question))} there",
                fix="do not let an answer depend on the process that asks (its id, its start, a cache made at import)",
            )


@cache
def _cold(subject: Subject, run: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "vla_train.conformance.cold", json.dumps(asdict(subject.candidate))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Failure(
            "The plugin cannot be looked at in a fresh process.",
            why=done.stderr.strip()[-600:],
            fix="it must not rely on what its parent has imported or set",
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _in_fork(subject: Subject) -> dict[str, str]:
    """The answers of a forked child, which has a copy of all that the parent has loaded."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(tour.answers(subject), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        received, deadline = b"", time.monotonic() + _CHILD_SECONDS
        while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = os.read(reader, 1 << 16)
            received += part
            if not part:
                break
        else:
            os.kill(child, signal.SIGKILL)
            raise Failure(
                "The hooks hang in a forked child.",
                why=f"no answer within {_CHILD_SECONDS} s",
                fix="hold no lock and start no thread when the plugin is imported",
            )
    finally:
        os.close(reader)
        os.waitpid(child, 0)
    if not received:
        raise Failure("A forked child that asks the hooks dies.", fix="keep no state that a fork invalidates")
    found: dict[str, str] = pickle.loads(received)
    return found


def _raised(call: Call) -> BackendError:
    if isinstance(call.error, BackendError):
        return call.error
    return Failure(
        f"{call.hook} raises {type(call.error).__name__}: {short(call.error)}.",
        why=f"asked {call}",
        fix="a hook answers; what the chip cannot do is Unsupported(reason, remedy)",
    )
