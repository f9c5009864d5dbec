"""Mistakes that show between two processes."""

from __future__ import annotations

import pytest

from vla_backend import Candidate
from vla_train.conformance import run

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
