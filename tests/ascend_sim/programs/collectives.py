"""Every collective that the trainer, DDP, FSDP, DeepSpeed and accelerate use, on two ranks."""

from __future__ import annotations

import copy
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

N = "npu"
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
assert dist.get_world_size() == 2
peer = 1 - rank


def full(value: float, count: int = 2) -> torch.Tensor:
    return torch.full((count,), float(value), device=N)


def reductions() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8):
        x = torch.ones(5, device=N).to(dtype) * (rank + 1)
        dist.all_reduce(x)
        assert x.tolist() == [3] * 5, dtype
    for op, expected in (
        (dist.ReduceOp.MAX, 2),
        (dist.ReduceOp.MIN, 1),
        (dist.ReduceOp.PRODUCT, 2),
        (dist.ReduceOp.AVG, 1.5),
    ):
        x = full(rank + 1)
        dist.all_reduce(x, op=op)
        assert x.tolist() == [expected] * 2, op
    big = torch.arange(1_500_000, device=N, dtype=torch.float32)  # several chunks
    dist.all_reduce(big)
    assert torch.equal(big, torch.arange(1_500_000, device=N, dtype=torch.float32) * 2)
    x = full(rank + 1)
    dist.reduce(x, 0)
    assert rank or x.tolist() == [3, 3]
    out = torch.empty(2, device=N)
    dist.reduce_scatter_tensor(out, torch.arange(4.0, device=N))
    assert out.tolist() == [4 * rank, 4 * rank + 2]
    parts = [torch.ones(2, device=N), torch.ones(3, device=N)]
    dist.all_reduce_coalesced(parts)
    assert [p.tolist() for p in parts] == [[2, 2], [2, 2, 2]]


def gathers() -> None:
    out = torch.empty(4, device=N)
    dist.all_gather_into_tensor(out, full(rank))
    assert out.tolist() == [0, 0, 1, 1]
    parts = [torch.empty(2, device=N) for _ in range(2)]
    dist.all_gather(parts, full(rank))
    assert parts[1].tolist() == [1, 1]
    uneven = [torch.empty(1, device=N), torch.empty(3, device=N)]
    dist.all_gather(uneven, full(rank, 1 + 2 * rank))
    assert [p.tolist() for p in uneven] == [[0], [1, 1, 1]]
    x = full(rank)
    dist.broadcast(x, 1)
    assert x.tolist() == [1, 1]
    x = torch.empty(2, device=N)
    dist.scatter(x, [full(5), full(6)] if rank == 0 else None, 0)
    assert x.tolist() == [5 + rank] * 2
    dist.gather(full(rank), parts if rank == 0 else None, 0)
    assert rank or parts[1].tolist() == [1, 1]
    dist.barrier()


def exchanges() -> None:
    out = torch.empty(4, device=N)
    dist.all_to_all_single(out, torch.arange(4.0, device=N) + 10 * rank)
    assert out.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank]
    sends, receives = ([1, 2], [1, 3]) if rank == 0 else ([3, 4], [2, 4])
    out = torch.empty(sum(receives), device=N)
    dist.all_to_all_single(out, torch.arange(float(sum(sends)), device=N) + 10 * rank, receives, sends)
    assert out.tolist() == ([0, 10, 11, 12] if rank == 0 else [1, 2, 13, 14, 15, 16])


def opposed_sends() -> None:
    """Both ranks send 4 MB before either receives."""
    mine, theirs = full(rank, 1_000_000), torch.empty(1_000_000, device=N)
    dist.send(mine, peer)
    dist.recv(theirs, peer)
    assert (theirs == peer).all()
    operations = [dist.P2POp(dist.irecv, theirs, peer), dist.P2POp(dist.isend, mine, peer)]
    theirs.zero_()
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert (theirs == peer).all()


def groups_and_objects() -> None:
    both, alone = dist.new_group([0, 1]), dist.new_group([0])
    x = full(1)
    dist.all_reduce(x, group=both)
    if rank == 0:
        dist.all_reduce(x, group=alone)
    assert x.tolist() == [2, 2]
    x = full(1)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert x.tolist() == [2, 2]
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    told = [rank]
    dist.broadcast_object_list(told, 0)
    assert told == [0]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def train(wrap) -> torch.Tensor:
    """Weights of the first layer after three steps; each rank sees its half of the batch."""
    wrapped = wrap(model().npu())
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    batch = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        wrapped(batch[rank * 3 : rank * 3 + 3].npu()).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
    weight = next(iter(wrapped.parameters())).detach()
    return (weight.full_tensor() if hasattr(weight, "full_tensor") else weight).cpu()


def one_process() -> torch.Tensor:
    reference = copy.deepcopy(model())
    optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    batch = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        reference(batch).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        optimizer.step()
    return reference[0].weight.detach()


def data_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    expected = one_process()
    torch.testing.assert_close(
        train(lambda m: DistributedDataParallel(m, device_ids=[rank])), expected, rtol=0, atol=1e-6
    )
    mesh = init_device_mesh("npu", (2,))
    torch.testing.assert_close(train(lambda m: fully_shard(m, mesh=mesh)), expected, rtol=0, atol=1e-6)


def flat_sharding() -> None:
    """The older FSDP; a flat parameter is put together again to be compared."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = FullyShardedDataParallel(model().npu(), device_id=torch.device(N, rank), use_orig_params=True)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    batch = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        wrapped(batch[rank * 3 : rank * 3 + 3].npu()).pow(2).mean().backward()
        wrapped.clip_grad_norm_(1.0)
        optimizer.step()
    with FullyShardedDataParallel.summon_full_params(wrapped):
        weight = next(iter(wrapped.parameters())).detach().cpu()
        torch.testing.assert_close(weight, one_process(), rtol=0, atol=1e-6)


def refused() -> None:
    for bad, says in (
        (torch.ones(2), "No backend type associated with device type cpu"),
        (torch.ones(2, dtype=torch.float64, device=N), "upport"),
    ):
        with pytest.raises(RuntimeError, match=says):
            dist.all_reduce(bad)


for step in (reductions, gathers, exchanges, opposed_sends, groups_and_objects, data_parallel, flat_sharding, refused):
    step()
    print(f"{rank} {step.__name__} holds\n", end="", flush=True)  # one write: ranks share the pipe
dist.destroy_process_group()
