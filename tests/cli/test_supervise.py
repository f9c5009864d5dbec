"""Processes really started: through accelerate's launcher, ended, interrupted, and failing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vla_train.launch.plan import Plan
from vla_train.launch.supervise import GRACE, supervise

RANKS = """
import os, pathlib, signal, sys, threading, time
from vla_backend.errors import BackendError
from vla_train.launch.failure import guard

rank, what, folder = int(os.environ.get("RANK", "0")), sys.argv[1], pathlib.Path(sys.argv[2])

def main():
    (folder / f"started_{rank}").write_text(str(os.getpid()))
    if what == "fail" and rank == int(os.environ.get("WORLD_SIZE", "1")) - 1:
        raise BackendError("The moon is full.", why="it is the 14th", fix="wait a day")
    if what == "crash":
        raise ZeroDivisionError("by zero")
    if what == "killed" and rank == int(os.environ.get("WORLD_SIZE", "1")) - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "silent":
        if rank == 1:
            os._exit(17)
        time.sleep(0.1)
        raise BackendError("Connection closed by peer.")  # written before anybody looks at rank 1
    if what == "stop":
        caught = []
        signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
        (folder / f"ready_{rank}").touch()
        while not caught:
            time.sleep(0.02)
        time.sleep(0.2)
        (folder / f"saved_{rank}").write_text(str(len(caught)))
        return 130
    if what == "stuck" and rank == 1:
        threading.Thread(target=time.sleep, args=(60,)).start()  # its process cannot end
        raise BackendError("The moon is full.")
    if what in ("stuck", "lonely"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a rank that saves first, and waits for the others to do it
        if what == "lonely" and rank == 1:
            raise BackendError("The moon is full.")
    if what == "stubborn":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (folder / f"ready_{rank}").touch()
    if what == "reduce":
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.tensor([rank + 1])
        dist.all_reduce(total)
        (folder / f"total_{rank}").write_text(str(int(total)))
        dist.destroy_process_group()
        return 0
    if what != "ok":
        time.sleep(60)

sys.exit(guard(main))
"""


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """A plan for ranks that do `what`, and the folder they write to."""
    (tmp_path / "ranks_of_a_test.py").write_text(RANKS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def planned(what: str, processes: int) -> tuple[Plan, Path]:
        return Plan("ranks_of_a_test", [what, str(tmp_path)], processes, added={"OMP_NUM_THREADS": "1"}), tmp_path

    return planned


def waited_for(*paths: Path) -> None:
    limit = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < limit, f"waited too long for {paths}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_process(launch, capfd):
    assert supervise(launch("ok", 1)[0]) == 0
    assert supervise(launch("fail", 1)[0]) == 2
    assert capfd.readouterr().err == "error: The moon is full.\n  why: it is the 14th\n  fix: wait a day\n"
    assert supervise(launch("crash", 1)[0]) == 1
    assert capfd.readouterr().err.strip().splitlines()[-1] == "ZeroDivisionError: by zero"
    assert supervise(launch("killed", 1)[0]) == 137
    assert "was ended by SIGKILL" in capfd.readouterr().err


def test_failing_rank_ends_the_others_and_is_shown_once(launch, capfd):
    plan, folder = launch("fail", 2)
    assert supervise(plan) == 2
    error = capfd.readouterr().err
    assert error.count("The moon is full.") == 1
    assert error.endswith("rank 1: error: The moon is full.\n  why: it is the 14th\n  fix: wait a day\n")
    assert "ChildFailedError" not in error
    if (folder / "started_0").exists():
        assert not alive(int((folder / "started_0").read_text()))


@pytest.mark.parametrize("what", ["lonely", "stuck"])
def test_a_failed_rank_ends_those_that_wait_for_it(launch, capfd, what):
    """Also where they answer no signal, or where the failed one cannot end."""
    plan, folder = launch(what, 2)
    begun = time.monotonic()
    assert supervise(plan) in (2, 137)
    assert time.monotonic() - begun < GRACE + 15
    assert capfd.readouterr().err.endswith("rank 1: error: The moon is full.\n")
    for rank in (0, 1):
        assert not alive(int((folder / f"started_{rank}").read_text()))


def test_killed_rank_is_named(launch, capfd):
    assert supervise(launch("killed", 2)[0]) == 137
    assert "rank 1 (process" in capfd.readouterr().err


def test_a_rank_that_ends_without_a_word_is_the_cause_of_what_the_others_report(launch, capfd):
    assert supervise(launch("silent", 2)[0]) == 17
    error = capfd.readouterr().err
    assert "rank 1 (process" in error
    assert "ended with exit code 17 and no error of its own" in error


def supervised(plan: Plan) -> subprocess.Popen[bytes]:
    code = (
        "import sys\nfrom vla_train.launch.plan import Plan\nfrom vla_train.launch.supervise import supervise\n"
        f"sys.exit(supervise({plan!r}))"
    )
    return subprocess.Popen([sys.executable, "-c", code])


def test_terminate_is_passed_on(launch):
    plan, folder = launch("hang", 1)
    parent = supervised(plan)
    waited_for(folder / "started_0")
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=30) == 143
    assert not alive(int((folder / "started_0").read_text()))


@pytest.mark.parametrize("processes", [1, 2])
def test_interrupt_reaches_every_rank_once(launch, processes):
    plan, folder = launch("stop", processes)
    parent = supervised(plan)
    waited_for(*[folder / f"ready_{rank}" for rank in range(processes)])
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=30) == 130
    assert [(folder / f"saved_{rank}").read_text() for rank in range(processes)] == ["1"] * processes


def test_interrupt_of_a_rank_without_a_handler(launch):
    plan, folder = launch("hang", 1)
    parent = supervised(plan)
    waited_for(folder / "started_0")
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=30) == 130


@pytest.mark.parametrize("processes", [1, 2])
def test_second_interrupt_ends_at_once(launch, processes):
    plan, folder = launch("stubborn", processes)
    parent = supervised(plan)
    waited_for(*[folder / f"ready_{rank}" for rank in range(processes)])
    parent.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=30) == 130
    assert not any(alive(int((folder / f"started_{rank}").read_text())) for rank in range(processes))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ranks_do_not_outlive_a_killed_launcher(launch):
    plan, folder = launch("hang", 2)
    parent = supervised(plan)
    waited_for(folder / "started_0", folder / "started_1")
    pids = [int((folder / f"started_{rank}").read_text()) for rank in range(2)]
    parent.kill()
    parent.wait()
    limit = time.monotonic() + 20
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_two_runs_beside_each_other(launch, tmp_path, monkeypatch):
    # A user-wide file of accelerate's must take no part: this one would start four processes through another launcher.
    (tmp_path / "home" / "accelerate").mkdir(parents=True)
    (tmp_path / "home" / "accelerate" / "default_config.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: TPU\nnum_processes: 4\nmixed_precision: fp16\n"
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    folders = [tmp_path / "first", tmp_path / "second"]
    parents = []
    for folder in folders:
        folder.mkdir()
        plan, _ = launch("reduce", 2)
        parents.append(supervised(Plan(plan.module, ["reduce", str(folder)], 2, added=plan.added)))
    assert [parent.wait(timeout=120) for parent in parents] == [0, 0]
    assert [(folder / f"total_{rank}").read_text() for folder in folders for rank in range(2)] == ["3"] * 4
