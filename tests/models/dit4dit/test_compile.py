"""Compiled blocks: same numbers, one compilation for all blocks of a kind, and clear words where there is none."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from vla_train.nn import ReplayDraws
from vla_train.train.errors import TrainError
from vla_train.train.setup import compile_regions


@pytest.fixture
def counted(backend, monkeypatch):
    """A compiler that runs what it is given and notes it."""
    torch.compiler.reset()
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return graph.forward

    copied = copy.copy(backend)
    # torch takes a function wherever it takes a compiler's name.
    copied.__dict__["compile_backend"] = compiler
    yield copied, graphs
    torch.compiler.reset()


def results(model, golden, batch):
    model.draws = ReplayDraws.from_tensors(golden("full_joint_state").tensors, "fwd.")
    losses = model(batch)
    sum(losses.values()).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: loss.item() for name, loss in losses.items()}, gradients


@pytest.mark.parametrize("checkpointing", [False, True])
def test_same_numbers_and_names(golden, tiny_config, build, recorded_batch, counted, checkpointing):
    backend, graphs = counted
    plain, compiled = (build(tiny_config(gradient_checkpointing=checkpointing)) for _ in range(2))
    compile_regions(compiled, backend)
    expected, found = (results(model, golden, recorded_batch()) for model in (plain, compiled))
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-6)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    # 4 video blocks with and 3 without gradients, 4 action blocks of 2 kinds: compiled by kind, not by block.
    assert 0 < len(graphs) <= 8
    again = len(graphs)
    results(compiled, golden, recorded_batch())
    assert len(graphs) == again


def test_model_without_parts_to_compile(backend):
    with pytest.raises(TrainError, match="no parts to compile"):
        compile_regions(nn.Linear(2, 2), backend)


@pytest.mark.slow
def test_backends_own_compiler(golden, tiny_config, build, recorded_batch, backend):
    torch.compiler.reset()
    plain, compiled = build(tiny_config()), build(tiny_config())
    compile_regions(compiled, backend)
    expected, found = (results(model, golden, recorded_batch()) for model in (plain, compiled))
    torch.compiler.reset()
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-3, atol=1e-5)
