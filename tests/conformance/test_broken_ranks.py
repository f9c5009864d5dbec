"""Mistakes that show between two processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vla_backend import Candidate
from vla_train.conformance import Failure, Result, ending, run
from vla_train.conformance.runner import _merge

MISTAKES = {
    "UnknownLibrary": ("ranks_join", "cannot meet over 'mychip_collectives'"),
    "CollectivesNowhere": ("ranks_join", "collectives on meta"),
    "OneFileForAll": ("sharded_by_two_ranks", "Both ranks write the same file"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found_and_named(name, child_path) -> None:
    check, says = MISTAKES[name]
    candidate = Candidate(name, "vla-broken", "1.0", f"tests.conformance.broken.ranks:{name}")
    results = run(candidate, ["distributed"], [check, "sharded_at_another_world_size"])
    assert (results[0].name, results[0].outcome) == (check, "failed"), results
    assert says in results[0].message
    assert results[1].outcome == "skipped", results
    assert check in results[1].message


class Alone:
    """Rank 0 of a pair whose peer stays away; its second barrier does what `second` does."""

    rank, is_main = 0, True

    def __init__(self, second) -> None:
        self._answers = [lambda: None, second]

    def barrier(self) -> None:
        self._answers.pop(0)()


def _timed_out() -> None:
    raise RuntimeError("timed out")


def test_collective_without_a_peer(tmp_path, monkeypatch) -> None:
    with pytest.raises(Failure, match="A collective succeeds without its peer"):
        ending.timeout_strikes(SimpleNamespace(world=Alone(lambda: None), folder=tmp_path))
    assert "RuntimeError after" in ending.timeout_strikes(SimpleNamespace(world=Alone(_timed_out), folder=tmp_path))
    monkeypatch.setattr(ending, "_STRUCK", -1.0)
    with pytest.raises(Failure, match="A collective without its peer ends after"):
        ending.timeout_strikes(SimpleNamespace(world=Alone(_timed_out), folder=tmp_path))


def test_first_failure_of_a_pair_is_the_one_shown() -> None:
    echo = Result("distributed", "gathers", "failed", "connection closed", 60.0)
    cause = Result("distributed", "gathers", "failed", "all_gather is wrong", 0.1)
    assert _merge([echo, cause]).message == "rank 1: all_gather is wrong"
