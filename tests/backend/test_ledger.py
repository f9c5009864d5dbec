"""Who decided what: answers, their sources, and what they replaced."""

from __future__ import annotations

import json

import pytest
import torch

from vla_backend import BackendInfo, Probe, activate, hookimpl
from vla_backend.discovery import Candidate
from vla_backend.hookspecs import SPECS
from vla_backend.ledger import hook_decisions


@pytest.fixture
def ready():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


def by_subject(backend):
    return {decision.subject: decision for decision in hook_decisions(backend)}


def test_every_hook_has_its_line_in_every_phase(ready) -> None:
    for backend in (activate("ascend", check_available=False), ready):
        subjects = [decision.subject.partition("(")[0] for decision in hook_decisions(backend)]
        assert set(subjects) == set(SPECS)
        json.dumps([decision.value for decision in hook_decisions(backend)])


def test_value_source_reason_and_what_was_replaced(ready) -> None:
    found = by_subject(ready)
    workers = found["dataloader_defaults"]
    assert workers.source.startswith("plugin cpu ")
    assert workers.value["start_method"] == "spawn"
    assert workers.replaced["num_workers"] >= workers.value["num_workers"]
    assert "worker" in workers.why
    assert found["dist_backend"].value == "gloo"
    assert found["pin_memory_ok"].source == "default"
    assert found["pin_memory_ok"].replaced is None
    assert found["compute_dtype(bf16)"].value == "torch.bfloat16"
    assert "loss scaling" in found["compute_dtype(fp16)"].value["reason"]
    assert found["save_sharded"].value == "vla_backend.defaults.train.save_sharded"


def test_a_later_phase_is_recorded_by_its_implementation() -> None:
    found = by_subject(activate("ascend", check_available=False))
    assert found["compute_dtype"].value == "vla_backend_ascend.precision.compute_dtype"
    assert found["compute_dtype"].replaced == "vla_backend.defaults.precision.compute_dtype"
    assert found["dist_backend"].value == "hccl"


def test_an_answer_that_fails_is_recorded_as_such(monkeypatch) -> None:
    class Plugin:
        @hookimpl
        def backend_info(self):
            return BackendInfo("cpu", "nobody")

        @hookimpl
        def probe(self, env):
            return Probe(True, "always", device_count=1)

        @hookimpl
        def dist_backend(self):
            raise OSError("no library")

    plugin = Plugin()
    monkeypatch.setattr(Candidate, "load", lambda self: plugin)
    backend = activate(Candidate("odd", "odd-dist", "1.0", "odd"))
    assert by_subject(backend)["dist_backend"].value == "OSError: no library"


def test_looking_changes_no_random_state(ready) -> None:
    before = torch.get_rng_state()
    hook_decisions(ready)
    assert torch.equal(before, torch.get_rng_state())
