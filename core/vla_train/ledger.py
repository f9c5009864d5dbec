"""The ledger of a run: each decision with its value, who made it, why, and what it replaced.

The launcher records what it decided in `launch.json` of the run's folder; the first rank adds what the backend and the
set-up decided and writes all of it into `decisions.json`, of which every checkpoint keeps a copy. Nothing here imports
torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vla_backend import Backend
from vla_backend.errors import BackendError
from vla_backend.ledger import Decision, hook_decisions, plain, reason
from vla_train.checkpoint.layout import DECISIONS, write_json
from vla_train.config.typed import defaults, leaves
from vla_train.config.typed import plain as tree
from vla_train.models import find

if TYPE_CHECKING:
    from vla_train.config import Config, Sources
    from vla_train.launch.plan import Plan

LAUNCH: Final = "launch.json"
#: In the order of a run.
SECTIONS: Final = ("choice", "environment", "configuration", "backend", "set-up")

Ledger = dict[str, list[Decision]]


class NoLedger(BackendError):
    """A folder without the ledger of a run."""


def launch_ledger(backend: Backend, config: Config, sources: Sources, plan: Plan, env: Mapping[str, str]) -> Ledger:
    """What was decided before any process started."""
    candidate = backend.candidate
    origin = f"plugin {backend.name} {candidate.version}"
    choice = [Decision("backend", backend.name, candidate.why or "default", backend.probe(env).reason)]
    made = [
        Decision(name, value, *_who_set(name, backend, origin, plan), replaced=env.get(name))
        for name, value in sorted(plan.added.items())
    ]
    made += [
        Decision(name, None, "launcher", "left over from another launcher, it would contradict this one", env.get(name))
        for name in plan.removed
    ]
    return {"choice": choice, "environment": made, "configuration": config_decisions(config, sources)}


def _who_set(name: str, backend: Backend, origin: str, plan: Plan) -> tuple[str, str]:
    if name in plan.engine:
        return "launcher", plan.engine[name]
    return origin, reason(backend, "env_defaults")


def config_decisions(config: Config, sources: Sources) -> list[Decision]:
    """Every value of the configuration that something other than the engine's default set."""
    entry = find(config.model.name)
    usual = dict(leaves({**defaults(type(config)), "model": defaults(entry.config_class)}))
    made = []
    for key, value in leaves(tree(config)):
        other = usual.get(key)
        if not sources.of(key).startswith("default") or (key in usual and other != value):
            made.append(Decision(key, plain(value), sources.of(key), replaced=None if other == value else plain(other)))
    return made


def write_launch(folder: Path, ledger: Ledger) -> None:
    """Leave the launcher's decisions for the first rank."""
    write_json(folder / LAUNCH, as_json(ledger))


def complete(folder: Path, backend: Backend, decisions: Mapping[str, Any]) -> dict[str, Any]:
    """`decisions` of the set-up with the whole ledger under "ledger"; what a run writes into `decisions.json`."""
    path = folder / LAUNCH
    ledger = from_json(json.loads(path.read_text())) if path.is_file() else {}
    ledger["backend"] = hook_decisions(backend)
    ledger["set-up"] = _set_up(decisions)
    return {**decisions, "ledger": as_json(ledger)}


def _set_up(decisions: Mapping[str, Any]) -> list[Decision]:
    """What the set-up of a run decided, one line each."""
    made = [
        Decision(name, decisions[name], "set-up")
        for name in ("device", "strategy", "processes", "autocast", "optimizer", "compile_backend", "pretrained")
        if name in decisions
    ]
    made += [Decision(f"frozen {name}", device, "model") for name, device in decisions.get("frozen", {}).items()]
    made += [
        Decision(f"fused {name}", f"{count} layers", "train.fused_kernels", "the backend has it in one piece")
        for name, count in decisions.get("fused_kernels", {}).items()
    ]
    made += [
        Decision(f"patch {patch['name']}", "applied" if patch["applied"] else "not applied", "plugin", patch["detail"])
        for patch in decisions.get("patches", ())
    ]
    made += [
        Decision(f"torch rewritten by {found['name']}", found["evidence"], "another package", found["consequence"])
        for found in decisions.get("rewrites", ())
    ]
    for change in decisions.get("deepspeed_changes", ()):
        made.append(Decision("deepspeed", change, "plugin"))
    made += [Decision(f"version {name}", version, "installed") for name, version in decisions["versions"].items()]
    return made


def read(folder: Path) -> Ledger:
    """The ledger of a run's folder or of a checkpoint.

    Raises:
        NoLedger: there is none.
    """
    path = folder.expanduser() / DECISIONS
    try:
        return from_json(json.loads(path.read_text())["ledger"])
    except FileNotFoundError:
        raise NoLedger(
            f"{folder} has no {DECISIONS}.",
            fix="give the folder of a run (runs/ID) or one of its checkpoints; the file is there after the first start",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoLedger(f"{path} holds no ledger.", why=f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Difference:
    """A subject on which two runs differ; `None` where one of them has no such decision."""

    section: str
    subject: str
    left: Decision | None
    right: Decision | None


def compare(left: Ledger, right: Ledger) -> list[Difference]:
    """Where two runs differ in a value, or in who decided it."""
    found = []
    for section in SECTIONS:
        ours, theirs = (_by_subject(ledger.get(section, ())) for ledger in (left, right))
        for subject in dict.fromkeys([*ours, *theirs]):
            one, other = ours.get(subject), theirs.get(subject)
            if one is None or other is None or (one.value, one.source) != (other.value, other.source):
                found.append(Difference(section, subject, one, other))
    return found


def _by_subject(decisions: Iterable[Decision]) -> dict[str, Decision]:
    """One subject may be decided several times (DeepSpeed's settings); the occurrence tells them apart."""
    found: dict[str, Decision] = {}
    for decision in decisions:
        name, count = decision.subject, 2
        while name in found:
            name, count = f"{decision.subject} #{count}", count + 1
        found[name] = decision
    return found


def as_json(ledger: Ledger) -> dict[str, Any]:
    return {section: [asdict(decision) for decision in ledger[section]] for section in SECTIONS if section in ledger}


def from_json(content: Mapping[str, Any]) -> Ledger:
    there = [section for section in SECTIONS if section in content]
    return {section: [Decision(**decision) for decision in content[section]] for section in there}
