"""Semantics of random numbers: a resumed run draws what the uninterrupted one would have drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vla_train.conformance.checks import Failure, check
from vla_train.conformance.samples import DISTRIBUTIONS
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


@check("device")
def rng_state_restores_draws(subject: Subject) -> str:
    """After set_rng_state the host's and the device's generator repeat their draws bit for bit."""
    import torch

    backend = subject.ready
    torch.manual_seed(7)
    _draw(subject)
    state = backend.rng_state()
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.uint8 or value.device.type != "cpu":
            raise Failure(
                f"rng_state answers a state of '{name}' that is no CPU tensor of bytes.",
                why=short(value),
                fix="answer what torch's get_rng_state() gives: a checkpoint is read on other machines",
            )
    first = _draw(subject)
    _draw(subject)
    backend.set_rng_state(state)
    second = _draw(subject)
    for name, tensor in first.items():
        if not torch.equal(tensor, second[name]):
            raise Failure(
                f"After set_rng_state the generator of '{name}' draws other numbers.",
                why=f"rng_state holds {', '.join(state) or 'nothing'}",
                fix="save and restore torch's CPU generator and that of the device",
            )
    return ", ".join(state)


@check("device")
def rng_state_advances_nothing(subject: Subject) -> None:
    """Reading the states changes no draw, and gives the same state twice."""
    import torch

    backend = subject.ready
    torch.manual_seed(7)
    untouched = _draw(subject)
    torch.manual_seed(7)
    one, two = backend.rng_state(), backend.rng_state()
    looked = _draw(subject)
    for name, tensor in untouched.items():
        if not torch.equal(tensor, looked[name]):
            raise Failure(
                f"rng_state advances the generator of '{name}'.",
                why="a draw after torch.manual_seed differs when the states were read before it",
                fix="only read the state: a run with checkpoints must equal one without",
            )
    if set(one) != set(two) or any(not torch.equal(one[name], two[name]) for name in one):
        raise Failure("rng_state answers two states for one moment.", fix="only read the state")


@check("device")
def rng_state_of_another_chip(subject: Subject) -> None:
    """set_rng_state ignores generators this chip lacks, and does without those a CPU checkpoint lacks."""
    import torch

    backend = subject.ready
    state = backend.rng_state()
    other = {name: value for name, value in state.items() if name == "cpu"}
    other["another_chip"] = torch.zeros(16, dtype=torch.uint8)
    torch.manual_seed(3)
    try:
        backend.set_rng_state(other)
    except Exception as error:
        raise Failure(
            "set_rng_state refuses the states of another chip.",
            why=f"given {', '.join(other)}: {type(error).__name__}: {short(error)}",
            fix="restore the generators that are here and in the state, ignore the rest",
        ) from error
    backend.set_rng_state(state)


@check("device")
def sampling_device_can_draw(subject: Subject) -> str:
    """Beta, Dirichlet and gamma can be drawn where sampling_device says, whatever the generators' state."""
    import torch

    places = {}
    made: dict[str, Callable[..., torch.distributions.Distribution]] = {
        "beta": torch.distributions.Beta,
        "dirichlet": lambda ones, _: torch.distributions.Dirichlet(ones),
        "gamma": torch.distributions.Gamma,
    }
    for name in DISTRIBUTIONS:
        where = subject.ready.sampling_device(name)
        torch.manual_seed(99)
        if subject.ready.sampling_device(name) != where:
            raise Failure(f"sampling_device({name!r}) depends on the state of a generator.", fix="answer one device")
        ones = torch.ones(3, device=where)
        try:
            drawn = made[name](ones, ones).sample((64,)).to(subject.device).cpu()
        except Exception as error:
            raise Failure(
                f"A {name} sample cannot be drawn on {where}.",
                why=f"sampling_device answered it; {type(error).__name__}: {short(error)}",
                fix="answer torch.device('cpu'), where every distribution exists",
            ) from error
        if not bool(torch.isfinite(drawn).all()) or drawn.std() == 0:
            raise Failure(
                f"Draws from {name} on {where} are all equal or not finite.", fix="answer torch.device('cpu')"
            )
        places[name] = str(where)
    return ", ".join(f"{name} on {where}" for name, where in places.items())


def _draw(subject: Subject) -> dict[str, torch.Tensor]:
    import torch

    device = subject.device
    drawn = {"cpu": torch.randn(5)}
    if device.type != "cpu":
        drawn[device.type] = torch.randn(5, device=device).cpu()
        dropped = torch.nn.functional.dropout(torch.ones(64, device=device), 0.5).cpu()
        drawn[f"{device.type} (dropout)"] = dropped
    return drawn
