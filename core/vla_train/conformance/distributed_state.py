"""Two processes: sharded checkpoints at this and another number of ranks."""

from __future__ import annotations

from vla_train.conformance.checks import Failure, check
from vla_train.conformance.running import check_equal, training_state
from vla_train.conformance.subject import Subject


@check("ranks")
def sharded_by_two_ranks(subject: Subject) -> str:
    """What two ranks save, two ranks load, and no file is written by both."""
    import torch.distributed as dist

    world, folder = subject.world, subject.folder / "two"
    folder.mkdir(exist_ok=True)
    world.barrier()
    files = subject.ready.save_sharded(training_state(subject, 1, world.rank, 2), folder)
    gathered: list[list[str]] = [[], []]
    dist.all_gather_object(gathered, files)
    twice = set(gathered[0]) & set(gathered[1])
    if twice:
        raise Failure(
            "Both ranks write the same file.",
            why=", ".join(sorted(twice)),
            fix="put the rank into the name, or let one rank write what is not sharded",
        )
    world.barrier()
    loaded = training_state(subject, 2, world.rank, 2)
    subject.ready.load_sharded(loaded, folder)
    check_equal(loaded, training_state(subject, 1), "A checkpoint of two ranks loaded by two")
    world.barrier()
    return f"{len(gathered[0]) + len(gathered[1])} files"


@check("ranks")
def sharded_at_another_world_size(subject: Subject) -> None:
    """What two ranks saved, one loads; what one saved, two load."""
    world = subject.world
    two, one = subject.folder / "two", subject.folder / "one"
    one.mkdir(exist_ok=True)
    world.barrier()
    if world.is_main:
        loaded = training_state(subject, 3)
        subject.ready.load_sharded(loaded, two)
        check_equal(loaded, training_state(subject, 1), "A checkpoint of two ranks loaded by one")
        subject.ready.save_sharded(training_state(subject, 4), one)
    world.barrier()
    loaded = training_state(subject, 5, world.rank, 2)
    subject.ready.load_sharded(loaded, one)
    check_equal(loaded, training_state(subject, 4), "A checkpoint of one rank loaded by two")
    world.barrier()
