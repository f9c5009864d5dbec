"""The failures of ZeRO-3 on two real ranks (DeepSpeed on CPU, gloo): met without the guard, gone with it."""

from __future__ import annotations

import pytest

from tests.train import ranks

pytest.importorskip("deepspeed")
JOBS = [
    ("two_dtypes", False),
    ("two_dtypes", True),
    ("evaluation", True),
    ("evaluation", False),
    ("saving", True),
    ("saving", False),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pitfalls")
    todo = [
        {"name": f"{job}-{guard}", "make": f"tests.pitfalls.jobs:{job}", "arguments": {"guard": guard}}
        for job, guard in JOBS
    ]
    ranks.run_all(todo, folder, timeout=200)
    return folder


def found(folder, job, guard):
    return [ranks.report(folder, f"{job}-{guard}", rank) for rank in (0, 1)]


def test_parameters_of_two_dtypes(folder) -> None:
    for report in found(folder, "two_dtypes", False):
        assert report["raised"].startswith("AssertionError")
        assert "two number formats" in report["what"]
        assert "ZeRO-3" in report["chinese"]
    assert found(folder, "two_dtypes", True) == [{}, {}]


def test_training_goes_on_after_an_evaluation(folder) -> None:
    for report in found(folder, "evaluation", False):
        assert "Inference tensors cannot be saved for backward" in report["raised"]
        assert "inference_mode" in report["what"]
        assert "evaluating" in report["chinese"]
    assert found(folder, "evaluation", True) == [{}, {}]


def test_saving_does_not_wait_for_a_gather(folder) -> None:
    alone = found(folder, "saving", False)
    # The rank whose patience ends first closes the connection, which may be all that the other sees.
    whats = {"A collective did not finish in time.", "Another process of the job has ended."}
    assert {report["what"] for report in alone} <= whats, alone
    assert any("in time" in report["what"] and "save_sharded" in report["chinese"] for report in alone), alone
    for report in found(folder, "saving", True):
        assert "raised" not in report
    assert len(found(folder, "saving", True)[0]["shards"]) == 2
