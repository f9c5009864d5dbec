"""HCCL of the simulated CANN between two processes: what works, and what must not seem to work."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.ascend_sim
TWO = ("--devices", "2")
SHORT = {"HCCL_EXEC_TIMEOUT": "4"}


def test_collectives(simulate) -> None:
    done = simulate("collectives.py", options=TWO, processes=2)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert len(re.findall(r"^\d \w+ holds$", done.stdout, re.MULTILINE)) == 16


def test_ranks_that_disagree(simulate) -> None:
    cases = {
        "name": r"EI0005.*Rank \d called Hccl(AllReduce|Broadcast), rank \d called Hccl(AllReduce|Broadcast)",
        "count": r"EI0005.*count is [34] on rank \d and [34] on rank \d",
        "dtype": r"EI0005.*data type is (4|11) on rank \d",
        "reduction": r"EI0005.*reduce operation is [02] on rank \d",
        "root": r"EI0005.*root is [01] on rank \d",
        "message": r"EI0005.*rank 0 sent 4 elements .* expects 3",
        "late": r"EI0002.*rank 0 of 2 waited 4 s for rank 1 \(alive, not here\)",
    }
    done = simulate("broken_collective.py", *cases, options=TWO, processes=2, env=SHORT)
    for case, says in cases.items():
        answers = re.findall(rf"^{case}: rank .*$", done.stdout, re.MULTILINE)
        failed = [answer for answer in answers if re.search(says, answer)]
        wanted = 1 if case in ("message", "late") else 2  # a send does not wait; who comes late finds the others gone
        assert len(failed) >= wanted, (case, answers, done.stderr[-3000:])


def test_error_shows_through_torch_npus_queue(simulate) -> None:
    done = simulate("broken_collective.py", "name", options=(*TWO, "--task-queue"), processes=2)
    assert len(re.findall("name: rank [01] after .*EI0005", done.stdout)) == 2, done.stdout + done.stderr[-3000:]


def test_two_ranks_on_one_device(simulate) -> None:
    done = simulate("broken_collective.py", "shared-device", options=TWO, processes=2)
    assert len(re.findall("EI0004.*rank 0 and rank 1 use the same device 0", done.stdout)) == 2, done.stdout


def test_dead_peer_is_named(simulate) -> None:
    done = simulate("broken_collective.py", "dead", options=TWO, processes=2, env=SHORT)
    assert re.search(r"EI0002.*waited 4 s for rank 1 \(its process is gone\)", done.stdout), done.stdout + done.stderr


def test_accelerate(simulate) -> None:
    done = simulate("accelerate_run.py", options=TWO, processes=2)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert sorted(re.findall(r"rank \d trained", done.stdout)) == ["rank 0 trained", "rank 1 trained"]


def test_accelerate_with_deepspeed(simulate) -> None:
    done = simulate("accelerate_deepspeed.py", options=TWO, processes=2, env={"DS_ACCELERATOR": "npu"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    assert sorted(re.findall(r"rank \d trained", done.stdout)) == ["rank 0 trained", "rank 1 trained"]
