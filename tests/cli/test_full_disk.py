"""A disk that takes no more at the start of a run is one clear message."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from vla_backend.errors import BackendError
from vla_train import worker
from vla_train.launch.failure import of_the_disk


def test_the_launcher_says_which_file_and_what_to_do(config, tmp_path):
    command = [sys.executable, "-m", "vla_train.cli", "train", "--backend", "cpu", "--config", str(config)]

    def nothing_may_grow() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(command, preexec_fn=nothing_may_grow, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "runs" / "demo") in done.stdout
    assert "the run's folder cannot be written" in done.stderr
    assert "make room, or put the run elsewhere (run.root)" in done.stderr


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_rank_says_so_too(config, monkeypatch, code):
    from vla_train.train import run

    def full(*args, **kwargs):
        raise OSError(code, "it does not fit")

    monkeypatch.setattr(run, "run", full)
    with pytest.raises(BackendError, match=r"(?s)runs/demo cannot be written.*it does not fit.*run\.root"):
        worker.main([str(config)])


def test_other_errors_are_left_alone():
    assert of_the_disk(FileNotFoundError(errno.ENOENT, "not there"), Path("run")) is None
    assert of_the_disk(ValueError("no"), Path("run")) is None
