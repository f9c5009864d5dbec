"""Collectives that cannot work, as the arguments say, each in a group of its own; every rank prints what it gets."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
first = rank == 0
torch.npu.set_device(0 if "shared-device" in sys.argv else rank)
dist.init_process_group("hccl")


def collective(case: str, group: dist.ProcessGroup) -> None:
    x = torch.ones(4, device="npu")
    if case == "name":
        dist.all_reduce(x, group=group) if first else dist.broadcast(x, 0, group=group)
    elif case == "count":
        dist.all_reduce(x if first else torch.ones(3, device="npu"), group=group)
    elif case == "dtype":
        dist.all_reduce(x if first else x.bfloat16(), group=group)
    elif case == "reduction":
        dist.all_reduce(x, op=dist.ReduceOp.SUM if first else dist.ReduceOp.MAX, group=group)
    elif case == "root":
        dist.broadcast(x, rank, group=group)
    elif case == "message":
        dist.send(x, 1, group=group) if first else dist.recv(torch.ones(3, device="npu"), 0, group=group)
    elif case == "shared-device":
        dist.all_reduce(x, group=group)
    else:  # the communicator is made at the first collective, so only the second one can be late
        dist.all_reduce(x, group=group)
        torch.npu.synchronize()
        if not first and case == "dead":
            os._exit(0)
        time.sleep(1 if first else 8)
        dist.all_reduce(x, group=group)


for case in sys.argv[1:]:
    group = dist.new_group([0, 1])
    started = time.monotonic()
    try:
        collective(case, group)
        for _ in range(2):  # an error of torch_npu's queue may show at the second look only
            torch.npu.synchronize()
            time.sleep(0.3)
    except RuntimeError as error:
        found = f" after {time.monotonic() - started:.0f} s: " + " ".join(str(error).split())
    else:
        found = ": no error"
    print(f"{case}: rank {rank}{found}\n", end="", flush=True)  # one write: ranks share the pipe
time.sleep(1)
os._exit(0)
