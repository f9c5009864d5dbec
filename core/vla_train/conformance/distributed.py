"""Two processes: the collectives that the engine, DistributedDataParallel and DeepSpeed's ZeRO use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from vla_train.conformance.checks import Failure, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

if TYPE_CHECKING:
    import torch

#: What gradients, metrics and counters come in.
_DTYPES: Final = ("float32", "bfloat16", "int64")


@check("ranks", seconds=180.0)
def ranks_join(subject: Subject) -> str:
    """Two processes join one group over the plugin's library, each with its own device."""
    import torch.distributed as dist

    backend = subject.ready
    try:
        world = subject.world
        world.barrier()
    except Exception as error:
        raise Failure(
            f"Two processes cannot meet over '{backend.dist_backend}'.",
            why=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}; collectives on {_where(subject)}",
            fix="answer from dist_backend the library that init_process_group knows for this device, and from "
            "collective_device where its tensors must lie",
        ) from error
    places = [None] * world.world_size
    dist.all_gather_object(places, str(backend.device))
    if not backend.probe().shared and len(set(places)) < len(places):
        raise Failure(f"Two ranks use one device, {places[0]}.", fix="let local_device take the index of the rank")
    return f"{backend.dist_backend}, tensors on {world.device}"


def _where(subject: Subject) -> str:
    try:
        return str(subject.ready.collective_device)
    except Exception as error:
        return f"a device that collective_device does not name ({short(error)})"


@check("ranks")
def engine_collectives(subject: Subject) -> None:
    """The engine's own: sum, mean, any, a value from rank 0, a barrier."""
    import torch

    world = subject.world
    _expect("sum", world.sum(torch.tensor([world.rank + 1.0])), [3.0])
    _expect("mean", world.mean(torch.tensor([world.rank + 1.0])), [1.5])
    _expect("any", torch.tensor([world.any(world.rank == 1), world.any(False)]), [True, False])
    _expect("a value from rank 0", torch.tensor([world.from_main(7 + world.rank)]), [7])
    world.barrier()


@check("ranks")
def reductions(subject: Subject) -> str:
    """all_reduce in every dtype and operation, reduce, reduce_scatter, asynchronous and coalesced."""
    import torch
    import torch.distributed as dist

    world = subject.world
    rank = world.rank
    for name in _DTYPES:
        x = torch.ones(5, device=world.device).to(getattr(torch, name)) * (rank + 1)
        dist.all_reduce(x)
        _expect(f"all_reduce of {name}", x, [3] * 5)
    for operation, expected in ((dist.ReduceOp.MAX, 2.0), (dist.ReduceOp.MIN, 1.0)):
        x = _full(subject, rank + 1)
        dist.all_reduce(x, op=operation)
        _expect(f"all_reduce with {operation}", x, [expected] * 2)
    large = torch.arange(300_000, device=world.device, dtype=torch.float32)
    work = dist.all_reduce(large, async_op=True)
    work.wait()
    _expect("an asynchronous all_reduce of 300000 values", large[-2:], [2 * 299_998, 2 * 299_999])
    x = _full(subject, rank + 1)
    dist.reduce(x, 1)
    if rank == 1:
        _expect("reduce to rank 1", x, [3.0, 3.0])
    out = torch.empty(2, device=world.device)
    dist.reduce_scatter_tensor(out, torch.arange(4.0, device=world.device))
    _expect("reduce_scatter_tensor", out, [4.0 * rank, 4.0 * rank + 2])
    return ", ".join(_DTYPES)


@check("ranks")
def gathers(subject: Subject) -> None:
    """broadcast, all_gather, all_gather_into_tensor, and point to point."""
    import torch
    import torch.distributed as dist

    world = subject.world
    rank = world.rank
    x = _full(subject, rank)
    dist.broadcast(x, 1)
    _expect("broadcast from rank 1", x, [1.0, 1.0])
    parts = [torch.empty(2, device=world.device) for _ in range(2)]
    dist.all_gather(parts, _full(subject, rank + 5))
    _expect("all_gather", torch.cat(parts), [5.0, 5.0, 6.0, 6.0])
    out = torch.empty(4, device=world.device)
    dist.all_gather_into_tensor(out, _full(subject, rank + 5))
    _expect("all_gather_into_tensor", out, [5.0, 5.0, 6.0, 6.0])
    received = torch.empty(2, device=world.device)
    if rank == 0:
        dist.send(_full(subject, 9), 1)
        dist.recv(received, 1)
    else:
        dist.recv(received, 0)
        dist.send(_full(subject, 8), 0)
    _expect("send and recv", received, [8.0 if rank == 0 else 9.0] * 2)
    dist.barrier()


@check("ranks")
def object_collectives(subject: Subject) -> None:
    """Python objects are gathered and broadcast."""
    import torch.distributed as dist

    world = subject.world
    gathered: list[Any] = [None, None]
    dist.all_gather_object(gathered, {"rank": world.rank, "name": "x" * (10 + 1000 * world.rank)})
    if [one["rank"] for one in gathered] != [0, 1] or len(gathered[1]["name"]) != 1010:
        raise Failure("all_gather_object gives other objects.", why=short(gathered))
    told = [("from", world.rank), None]
    dist.broadcast_object_list(told, 1)
    if told[0] != ("from", 1):
        raise Failure("broadcast_object_list gives another object.", why=short(told))


@check("ranks")
def groups(subject: Subject) -> None:
    """A second group, and one of a single rank, work beside the first."""
    import torch.distributed as dist

    both, alone = dist.new_group([0, 1]), dist.new_group([0])
    x = _full(subject, 1)
    dist.all_reduce(x, group=both)
    if subject.world.rank == 0:
        dist.all_reduce(x, group=alone)
    _expect("all_reduce in new groups", x, [2.0, 2.0])


@check("ranks")
def uneven_last_batch(subject: Subject) -> None:
    """DistributedDataParallel averages gradients when ranks hold batches of different size, without hanging."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    world = subject.world
    batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    parts = (batch[:3], batch[3:])

    def gradient(x: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        model(x).pow(2).mean().backward()
        found = next(iter(model.parameters())).grad
        assert found is not None
        return found.detach().cpu().clone()

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))

    expected = (gradient(parts[0], model()) + gradient(parts[1], model())) / 2
    own = model().to(subject.device)
    got = gradient(parts[world.rank].to(subject.device), DistributedDataParallel(own))
    if not torch.allclose(got, expected, rtol=1e-4, atol=1e-6):
        raise Failure(
            "Gradients of uneven batches are not averaged over the ranks.",
            why=f"the largest difference is {(got - expected).abs().max().item():g}",
            fix="the library must average exactly what each rank has, whatever its batch",
        )


def _full(subject: Subject, value: float) -> torch.Tensor:
    import torch

    return torch.full((2,), float(value), device=subject.world.device)


def _expect(what: str, got: torch.Tensor, expected: list[Any]) -> None:
    if got.cpu().tolist() != expected:
        raise Failure(
            f"{what} is wrong.",
            why=f"expected {short(expected)}, got {short(got.cpu().tolist())}",
            fix="the library of dist_backend must compute it; see torch.distributed",
        )
