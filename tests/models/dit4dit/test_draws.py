"""The source of random numbers: the same calls as torch's, repeatable, and replayed with checks."""

from __future__ import annotations

import pytest
import torch

from vla_train.nn import DrawError, Draws, ReplayDraws


def test_default_draws_are_torchs_own():
    draws = Draws()
    torch.manual_seed(0)
    like = torch.empty(3, 2, dtype=torch.bfloat16)
    found = [
        draws.randn((2, 3), device="cpu"),
        draws.rand((4,), device="cpu"),
        draws.randn_like(like),
        draws.beta(1.5, 1.0, 5, device="cpu"),
    ]
    torch.manual_seed(0)
    expected = [
        torch.randn(2, 3),
        torch.rand(4),
        torch.randn_like(like),
        torch.distributions.Beta(1.5, 1.0).sample((5,)),
    ]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype


def test_a_generator_leaves_the_default_one_alone():
    before = torch.get_rng_state()
    draws = Draws(torch.Generator().manual_seed(1))
    tensors = [draws.randn((3,), device="cpu"), draws.rand((3,), device="cpu"), draws.randn_like(torch.empty(3))]
    assert torch.equal(torch.get_rng_state(), before)
    again = Draws(torch.Generator().manual_seed(1))
    assert torch.equal(tensors[0], again.randn((3,), device="cpu"))


def test_replay_in_order_of_number_and_only_of_its_prefix():
    tensors = {"a.draw.10.rand": torch.rand(2), "a.draw.09.randn": torch.rand(3), "b.draw.00.beta": torch.rand(1)}
    draws = ReplayDraws.from_tensors(tensors, "a.")
    assert torch.equal(draws.randn((3,), device="cpu"), tensors["a.draw.09.randn"])
    assert draws.remaining == 1
    assert torch.equal(draws.rand((2,), device="cpu"), tensors["a.draw.10.rand"])
    with pytest.raises(DrawError, match="all 2 recorded draws are used"):
        draws.rand((2,), device="cpu")


def test_replay_refuses_another_kind_or_shape():
    with pytest.raises(DrawError, match=r"asked for rand\(2,\), recorded is randn\(2,\)"):
        ReplayDraws([("randn", torch.rand(2))]).rand((2,), device="cpu")
    with pytest.raises(DrawError, match=r"asked for randn_like\(3,\), recorded is randn_like\(2,\)"):
        ReplayDraws([("randn_like", torch.rand(2))]).randn_like(torch.empty(3))
    with pytest.raises(DrawError, match=r"asked for beta\(2,\)"):
        ReplayDraws([("rand", torch.rand(2))]).beta(1.0, 1.0, 2, device="cpu")
    with pytest.raises(DrawError, match="unknown kind"):
        ReplayDraws([("normal", torch.rand(2))])
    with pytest.raises(DrawError, match="no recorded draws"):
        ReplayDraws.from_tensors({}, "x.")
