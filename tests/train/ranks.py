"""Two ranks on one machine for tests: started once, they work through a list of runs and report what happened.

RANK=0 WORLD_SIZE=2 ... python -m tests.train.ranks JOBS.json
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_all(jobs: list[dict[str, Any]], folder: Path, world_size: int = 2, timeout: float = 300) -> None:
    """Run every job on `world_size` ranks, in order, in the same processes.

    Args:
        jobs: `{"name", "make": "module:function", "arguments"}`; the function gets the arguments, the job's folder
            and the rank, and answers what is written to `folder/name/rank<r>.json`.

    A job that raises is reported under "error" and ends its ranks; the jobs after it are not run.
    """
    spec = folder / "jobs.json"
    spec.write_text(json.dumps({"jobs": jobs, "folder": str(folder)}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | group | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.train.ranks", str(spec)]
    ranks = [
        subprocess.Popen(
            command,
            env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=ROOT,
            stdout=(folder / f"rank{rank}.log").open("w"),
            stderr=subprocess.STDOUT,
        )
        for rank in range(world_size)
    ]
    try:
        for rank in ranks:
            rank.wait(timeout)
    finally:
        for rank in ranks:
            rank.kill()


def report(folder: Path, name: str, rank: int = 0) -> dict[str, Any]:
    """What a job reported; fails with the rank's log if it reported nothing or an error."""
    path = folder / name / f"rank{rank}.json"
    log = (folder / f"rank{rank}.log").read_text()[-6000:]
    assert path.exists(), f"{name} did not finish on rank {rank}:\n{log}"
    found: dict[str, Any] = json.loads(path.read_text())
    assert "error" not in found, f"{name}: {found['error']}\n{log}"
    return found


def main() -> int:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    spec = json.loads(Path(sys.argv[1]).read_text())
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for job in spec["jobs"]:
        folder = Path(spec["folder"]) / job["name"]
        folder.mkdir(exist_ok=True)
        module, _, function = job["make"].partition(":")
        try:
            found = getattr(importlib.import_module(module), function)(folder=folder, rank=rank, **job["arguments"])
        except BaseException as error:
            traceback.print_exc()
            (folder / f"rank{rank}.json").write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
            return 1
        (folder / f"rank{rank}.json").write_text(json.dumps(found))
        dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
