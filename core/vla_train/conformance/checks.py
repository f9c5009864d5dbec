"""What a check is, how it fails or is skipped, and the table of all checks."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from vla_backend.errors import BackendError

if TYPE_CHECKING:
    from vla_train.conformance.subject import Subject

Stage = Literal["light", "device", "ranks"]
Outcome = Literal["passed", "failed", "skipped"]

#: Tier -> modules with its checks. Importing one imports no torch; a check imports what it needs when it runs.
TIERS: Final[dict[str, tuple[str, ...]]] = {
    "contract": ("contract", "phases"),
    "semantics": ("precision", "tensors", "random_numbers", "loading", "running"),
    "distributed": ("distributed", "distributed_state", "ending"),
    "numerics": ("numerics", "attention", "kernels"),
    "census": ("census",),
}


#: Mistakes in code. Where a check wants a refusal, these are none.
MISTAKES: Final = (TypeError, AttributeError, NameError)


class Failure(BackendError):
    """A mistake of the plugin: `what` names it, `why` quotes the answer, `fix` says what to do."""


class Skip(Exception):
    """The check does not apply here; the message is the reason."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: unique in its tier.
        tier: one of `TIERS`.
        stage: where it runs: "light" in a process without torch, "device" in one that owns the device of rank 0,
            "ranks" in two processes at once.
        function: gets a `Subject`; raises `Failure` or `Skip`, may answer a remark.
        apart: for "ranks": in a pair of processes of its own, because it breaks the process group.
        may_end_process: for "ranks": a vendor's library may end the process instead of raising; that passes too.
        seconds: time limit.
        collective_seconds: for "ranks": time limit of a collective.
    """

    name: str
    tier: str
    stage: Stage
    function: Callable[[Subject], str | None]
    apart: bool = False
    may_end_process: bool = False
    seconds: float = 120.0
    collective_seconds: int = 60

    @property
    def says(self) -> str:
        """What passing proves, one sentence."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def key(self) -> str:
        return f"{self.tier}.{self.name}"


@dataclass(frozen=True)
class Result:
    """What came of one check; `message` says why it failed or was skipped, or is a remark."""

    tier: str
    name: str
    outcome: Outcome
    message: str
    seconds: float


def check(stage: Stage, **options: Any) -> Callable[[Callable[[Subject], str | None]], Callable[[Subject], str | None]]:
    """Make a function of a tier's module a check of that name."""

    def mark(function: Callable[[Subject], str | None]) -> Callable[[Subject], str | None]:
        function.conformance = {"stage": stage, **options}  # type: ignore[attr-defined]
        return function

    return mark


@functools.cache
def catalogue() -> dict[str, Check]:
    """Every check by "tier.name", in the order in which they run."""
    found: dict[str, Check] = {}
    for tier, modules in TIERS.items():
        for module in modules:
            for name, value in vars(importlib.import_module(f"vla_train.conformance.{module}")).items():
                options = getattr(value, "conformance", None)
                if options is not None and value.__module__.endswith(f".{module}"):
                    made = Check(name=name, tier=tier, function=value, **options)
                    found[made.key] = made
    return found


def select(tiers: Iterable[str], only: Iterable[str] | None = None) -> list[Check]:
    """The checks of `tiers` in their order; `only` names single ones.

    Raises:
        BackendError: a tier or check that does not exist.
    """
    wanted = list(tiers)
    for tier in wanted:
        if tier not in TIERS:
            near = difflib.get_close_matches(tier, TIERS, n=1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise BackendError(f"There is no tier '{tier}'.", fix=f"{meant}The tiers are {', '.join(TIERS)}")
    chosen = [one for one in catalogue().values() if one.tier in wanted]
    if only is None:
        return chosen
    names = set(only)
    unknown = names - {one.name for one in chosen}
    if unknown:
        known = [one.name for one in catalogue().values()]
        near = [name for one in sorted(unknown) for name in difflib.get_close_matches(one, known, n=1)]
        meant = f"did you mean '{', '.join(near)}'? " if near else ""
        raise BackendError(
            f"No check is called {', '.join(sorted(unknown))} in the tiers {', '.join(wanted)}.",
            fix=f"{meant}`vla plugin check --list` shows all of them",
        )
    return [one for one in chosen if one.name in names]
