"""Faults from the command line happen where they were asked for, and in no other place."""

from __future__ import annotations

import pytest

from vla_backend_ascend.cann_sim.faults import Fault

pytestmark = pytest.mark.ascend_sim
TRAIN = """
import torch
model = torch.nn.Linear(4, 4).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 6):
    try:
        model(torch.randn(2, 4, device="npu")).sum().backward()
        optimizer.step()
        print("step", step, flush=True)
    except RuntimeError as error:
        print("step", step, type(error).__name__, " ".join(str(error).split())[-400:], flush=True)
"""


def steps(done) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("step")]


@pytest.mark.parametrize(
    ("fault", "says"), [("device_lost:step=2", "error code is 507899"), ("ecc:step=2", "HBM MULTI BIT ECC ERROR")]
)
def test_device_breaks_for_good(simulate, fault: str, says: str) -> None:
    found = steps(simulate(TRAIN, options=("--fault", fault)))
    assert found[:2] == ["step 1", "step 2"]
    assert len(found) == 5
    assert all(says in line for line in found[2:]), found


def test_rank_that_dies(simulate) -> None:
    done = simulate(TRAIN, options=("--fault", "die:rank=0,step=3"))
    assert steps(done) == ["step 1", "step 2", "step 3"]
    assert done.returncode == 137


def test_fault_of_another_rank(simulate) -> None:
    assert len(steps(simulate(TRAIN, options=("--fault", "die:rank=1,step=3")))) == 5


OOM = """
import torch
for i in range(4):
    try:
        torch.empty(64 << 20, device="npu")
        torch.npu.empty_cache()
        print("step fits", flush=True)
    except RuntimeError as error:  # torch.OutOfMemoryError since torch_npu 2.8
        print("step", "out of memory" in str(error), flush=True)
"""


def test_out_of_memory(simulate) -> None:
    found = steps(simulate(OOM, options=("--fault", "oom:allocation=2")))
    assert found.count("step True") == 1
    assert found[0] == "step fits"
    assert found[-1] == "step fits"


REDUCE = """
import os, time, torch
import torch.distributed as dist
rank = os.environ["RANK"]
open(f"pid{rank}", "w").write(str(os.getpid()))
torch.npu.set_device(int(rank))
dist.init_process_group("hccl")
x = torch.ones(500_000, device="npu")
for step in range(3):
    started = time.monotonic()
    try:
        dist.all_reduce(x)
        torch.npu.synchronize()
    except RuntimeError as error:
        print(f"step {rank} {' '.join(str(error).split())}\\n", end="", flush=True)
        os.kill(int(open("pid1").read()), 9)  # the one that hangs heeds nothing less
        os._exit(1)
    print(f"step {rank} {time.monotonic() - started:.3f}\\n", end="", flush=True)  # one write
dist.destroy_process_group()
"""


def test_slow_link(simulate, tmp_path) -> None:
    (tmp_path / "reduce.py").write_text(REDUCE)
    done = simulate(str(tmp_path / "reduce.py"), options=("--devices", "2", "--fault", "slow_link:mbps=2"), processes=2)
    seconds = [float(line.split()[2]) for line in steps(done)]
    assert len(seconds) == 6, done.stderr[-3000:]
    assert min(seconds) > 0.95  # 2 MB at 2 MB/s


def test_hanging_rank_runs_into_the_timeout(simulate, tmp_path) -> None:
    (tmp_path / "reduce.py").write_text(REDUCE)
    options = ("--devices", "2", "--fault", "hang:rank=1,collective=2")
    done = simulate(str(tmp_path / "reduce.py"), options=options, processes=2, env={"HCCL_EXEC_TIMEOUT": "3"})
    assert "rank 1 (alive, not here)" in done.stdout, done.stdout + done.stderr[-3000:]


def test_parse() -> None:
    assert Fault.parse("device_lost:rank=1,step=5") == Fault("device_lost", 1, "step", 5)
    assert Fault.parse("oom") == Fault("oom")
    for wrong in ("melt", "oom:when=3", "hang:step=soon", "slow_link", "ecc:mbps=3"):
        with pytest.raises(ValueError, match=wrong.split(":")[0]):
            Fault.parse(wrong)
