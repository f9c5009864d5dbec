"""What a job survives: killed at random moments, disks that take no more, folders that take nothing, damaged files."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest
import torch

from tests.train import jobs
from tests.train.faults import NOBODY, STEPS, Job, started
from vla_train.checkpoint import layout, resume
from vla_train.checkpoint.manifest import Manifest, whole
from vla_train.launch.failure import ended_by
from vla_train.train.world import World

pytestmark = pytest.mark.faults

# (strategy, processes, kills at any moment, kills while a checkpoint is being written); 50 in all.
KILLS = [("ddp", 1, 10, 14), ("zero2", 1, 3, 5), ("ddp", 2, 3, 3), ("zero2", 2, 3, 3), ("zero3", 2, 3, 3)]
assert sum(anytime + saving for _, _, anytime, saving in KILLS) == 50


def _weights(job: Job) -> dict[str, torch.Tensor]:
    return jobs.weights(job.folder, STEPS)


def _same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def _kill_at(job: Job, seconds: float) -> None:
    """After this time, counted from the first checkpoint: before it nothing can be lost."""
    _until(lambda: job.newest() > 0, job)
    time.sleep(seconds)
    job.kill()


def _kill_while_saving(job: Job, step: int, seconds: float) -> None:
    draft = job.checkpoints / layout.draft_name(step)
    _until(lambda: draft.exists() or job.newest() > step, job)
    time.sleep(seconds)
    job.kill()


def _until(condition, job: Job) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, job.log()
        assert any(rank.is_alive() for rank in job.ranks) or condition(), job.log()
        time.sleep(0.001)


@pytest.mark.parametrize(("strategy", "processes", "anytime", "saving"), KILLS)
def test_killed_at_random_moments(tmp_path, strategy, processes, anytime, saving):
    seed = int(os.environ.get("FAULT_SEED", time.time_ns() % 10**6))
    print(f"FAULT_SEED={seed}")
    draw = random.Random(seed)
    how = {"parallel__strategy": strategy}
    (tmp_path / "whole").mkdir()
    with started(tmp_path / "whole", processes, **how) as whole:
        _until(lambda: whole.newest() > 0, whole)
        begun = time.monotonic()
        assert whole.wait() == [0] * processes, whole.log()
        lasts = time.monotonic() - begun
    expected = _weights(whole)
    cut_short = 0
    for number in range(anytime + saving):
        folder = tmp_path / f"killed{number}"
        folder.mkdir()
        with started(folder, processes, **how) as job:
            if number < anytime:
                _kill_at(job, draw.uniform(0, lasts))
            else:
                _kill_while_saving(job, draw.randint(2, STEPS - 1), draw.uniform(0, 0.5 * lasts / STEPS))
            survived = job.newest()
            assert survived
            cut_short += bool(job.drafts())
        with started(folder, processes, **how) as again:
            assert again.wait() == [0] * processes, again.log()
            said = f"continues from {again.checkpoints / layout.step_name(survived)} (step {survived})"
            assert said in again.log(), (number, survived, again.log())
        assert _same(_weights(again), expected), (number, survived)
        assert again.drafts() == []
        shutil.rmtree(folder)
    print(f"{strategy} x {processes}: {cut_short} of {anytime + saving} kills left a half-written checkpoint")
    assert cut_short >= 1


@pytest.mark.parametrize("strategy", ["ddp", "zero2"])
@pytest.mark.parametrize("limit", [100, 1500, 4000])
def test_a_disk_that_takes_no_more(tmp_path, strategy, limit):
    """Real write errors at several places of a save: the error says so, and the run continues once there is room."""
    how = {"parallel__strategy": strategy, "train__max_steps": 4}
    with started(tmp_path, 1, **how | {"train__max_steps": 2}) as job:
        assert job.wait() == [0], job.log()
    with started(tmp_path, 1, file_limit=limit, **how) as full:
        assert full.wait() == [2], full.log()
        assert "step_00000003 was not written" in full.log()
        assert full.newest() == 2
        assert full.drafts() == []
    with started(tmp_path, 1, **how) as again:
        assert again.wait() == [0], again.log()
        assert "(step 2)" in again.log()
        assert again.newest() == 4


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
@pytest.mark.parametrize("limited", [0, 1])
def test_one_rank_that_cannot_write_does_not_hold_the_other(tmp_path, strategy, limited):
    """Both ranks say so within seconds, long before `parallel.dist_timeout`; DeepSpeed waits inside of its save."""
    how = {"parallel__strategy": strategy, "train__max_steps": 4, "parallel__dist_timeout": 600}
    with started(tmp_path, 2, file_limit=1500, limited=limited, **how) as job:
        assert job.wait(60) == [2, 2], job.log(0) + job.log(1)
        assert "step_00000001 was not written" in job.log(limited)
        assert "another rank could not write its share" in job.log(1 - limited)
        assert job.newest() == 0
        assert job.drafts() == []


@pytest.mark.parametrize("broken", [0, 1])
def test_an_error_inside_a_library_ends_the_job_at_once(tmp_path, broken):
    """The other rank waits in the library, where the first cannot go on."""
    how = {"parallel__strategy": "zero2", "train__max_steps": 4, "parallel__dist_timeout": 600}
    with started(tmp_path, 2, how={"broken_save_rank": broken}, **how) as job:
        job.ranks[broken].join(60)
        assert job.ranks[broken].exitcode == 2, job.log(broken)
        assert "DeepSpeed's save failed on this rank" in job.log(broken)
        assert "a bug in the library" in job.log(broken)
        # What the launcher does a few seconds later happens here through the closed connection.
        job.ranks[1 - broken].join(60)
        assert job.ranks[1 - broken].exitcode not in (None, 0)
        assert job.newest() == 0


@pytest.fixture
def open_folder():
    """A folder that another user can reach; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_takes_nothing(open_folder):
    folder = open_folder
    how = {"train__max_steps": 4}
    with started(folder, 1, **how | {"train__max_steps": 2}) as job:
        assert job.wait() == [0], job.log()
    for path in [folder, *folder.rglob("*")]:
        if os.geteuid() == 0:  # whom no permission stops: the rank becomes somebody else
            os.chown(path, NOBODY, -1)
    job.checkpoints.chmod(0o555)
    with started(folder, 1, unprivileged=True, **how) as closed:
        assert closed.wait() == [2], closed.log()
        assert "step_00000003 was not written" in closed.log()
        assert "Permission denied" in closed.log()
        assert closed.newest() == 2
    job.checkpoints.chmod(0o755)
    with started(folder, 1, **how) as again:
        assert again.wait() == [0], again.log()
        assert again.newest() == 4


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
def test_a_rank_that_hangs_is_named_in_time(tmp_path, strategy):
    how = {"parallel__strategy": strategy, "parallel__dist_timeout": 8}
    with started(tmp_path, 2, how={"hang_rank": 1}, **how) as job:
        _until(lambda: job.newest() == 2, job)
        begun = time.monotonic()
        job.ranks[0].join(60)
        assert job.ranks[0].exitcode == 2, job.log()
        assert time.monotonic() - begun < 8 + 4
        assert "Rank 1 hangs or died in step 3 (forward, toy.py:" in job.log()
        assert "samples of that rank: toy/" in job.log()
        assert job.newest() == 2


def test_a_rank_that_dies_is_named_with_its_samples(tmp_path):
    launch = tmp_path / "launch"
    launch.mkdir()
    with started(tmp_path, 2, how={"killed_rank": 1}, launch=launch, parallel__dist_timeout=600) as job:
        begun = time.monotonic()
        assert job.wait(60)[1] == -9
        assert job.ranks[0].exitcode in (1, 2)
        assert time.monotonic() - begun < 60
        said = ended_by(1, 4711, "SIGKILL", launch)
        assert "rank 1 (process 4711) was ended by SIGKILL in step 3 (forward; samples: toy/" in said
        assert job.newest() == 2


def test_a_data_worker_that_dies_is_named_with_the_samples(tmp_path):
    with started(tmp_path, 1, how={"killed_worker_at": 17}, data__num_workers=1) as job:
        assert job.wait(120) == [2], job.log()
        saved = json.loads((tmp_path / "run" / "data_worker_rank0.json").read_text())
        # Loading runs ahead of training, and a death is noticed at once.
        assert 2 <= saved["step"] <= 5
        assert f"Step {saved['step']}, rank 0: a data worker died" in job.log()
        assert {"epoch": 0, "index": 17, "sample_id": f"toy/{17 * 7 % 40}"} in saved["samples"]
        survived = job.newest()
        assert survived in (saved["step"] - 2, saved["step"] - 1)
    with started(tmp_path, 1) as again:
        assert again.wait() == [0], again.log()
        assert f"(step {survived})" in again.log()


@pytest.mark.parametrize("strategy", ["ddp", "zero2"])
def test_every_damaged_file_is_found(tmp_path, strategy):
    """Each file of the newest checkpoint in turn is cut or gets a bit flipped; the one before is used, and said so."""
    draw = random.Random(5)
    how = {"parallel__strategy": strategy, "train__max_steps": 3}
    with started(tmp_path, 1, **how) as job:
        assert job.wait() == [0], job.log()
    newest = job.checkpoints / layout.step_name(3)
    expected = jobs.weights(tmp_path, 3)
    harms = [(name, harm) for name in sorted(Manifest.read(newest).files) for harm in ("cut", "flip")]
    assert len(harms) >= 8
    alone, continued = World(0, 0, 1, torch.device("cpu")), draw.sample(harms, 3)
    for name, harm in harms:
        content = (newest / name).read_bytes()
        harmed = bytearray(content)
        if harm == "cut":
            del harmed[draw.randrange(len(harmed)) :]
        else:
            harmed[draw.randrange(len(harmed))] ^= 1 << draw.randrange(8)
        (newest / name).write_bytes(harmed)
        said: list[str] = []
        found = resume.find(tmp_path / "run", "auto", alone, said.append)
        assert found is not None
        assert found.folder.name == layout.step_name(2)
        assert said[0].startswith(f"checkpoint step_00000003 is passed over: {name} ")
        if (name, harm) in continued:
            with started(tmp_path, 1, **how) as again:
                assert again.wait() == [0], again.log()
            assert said[0] in again.log()
            assert "(step 2)" in again.log()
            assert _same(jobs.weights(tmp_path, 3), expected)
        else:
            (newest / name).write_bytes(content)


def test_rotation_never_removes_the_last_good_one(tmp_path):
    """Newer checkpoints whose files are damaged do not count when old ones are removed."""
    how = {"train__keep_checkpoints": 1, "train__max_steps": 3}
    with started(tmp_path, 1, **how | {"train__keep_checkpoints": 3}) as job:
        assert job.wait() == [0], job.log()
    good, *newer = (job.checkpoints / layout.step_name(step) for step in (1, 2, 3))
    for folder in newer:
        shard = next(folder.glob("state-*"))
        shard.write_bytes(shard.read_bytes()[:-1])
    assert layout.rotate(job.checkpoints, 1, whole) == []
    assert Manifest.read(good).problems(good) == []
    with started(tmp_path, 1, **how) as again:
        assert again.wait() == [0], again.log()
        assert "(step 1)" in again.log()
    assert layout.saved_steps(job.checkpoints) == [3]
