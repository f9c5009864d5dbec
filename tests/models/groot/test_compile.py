"""Compiled blocks compute the recorded loss, one compilation for all blocks of a kind."""

from __future__ import annotations

import copy

import pytest
import torch

from vla_groot.checkpoint import load_model
from vla_train.nn import ReplayDraws
from vla_train.train.setup import compile_regions

from .conftest import DATA, near, part


def results(model, recorded, batch):
    model.draws = ReplayDraws.from_tensors(recorded)
    loss = model(batch)["action_loss"]
    model.zero_grad()
    loss.backward()
    return loss.detach(), {name: p.grad.norm() for name, p in model.named_parameters() if p.grad is not None}


def check(backend, tensors, tolerance: float):
    recorded = tensors("full_loss")
    batch = {**part(recorded, "in."), "pixel_values": tensors("processor_batch")["batch.pixel_values"]}
    changes = {"tune_llm": False, "tune_visual": False, "tune_top_llm_layers": 1}
    plain, compiled = (load_model(DATA / "checkpoint", backend, changes=changes) for _ in range(2))
    compile_regions(compiled, backend)
    expected, found = (results(model, recorded, batch) for model in (plain, compiled))
    near(found[0], recorded["out.loss"][0], 1e-5)
    assert expected[1].keys() == found[1].keys()
    for name, norm in expected[1].items():
        if not name.endswith("attn1.to_k.bias"):  # nothing but rounding: softmax does not see it
            torch.testing.assert_close(found[1][name], norm, rtol=tolerance, atol=1e-6, msg=name)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    return lambda: results(compiled, recorded, batch)


@pytest.fixture
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("_fresh_compiler")
def test_same_numbers_and_names(backend, tensors):
    graphs = []

    def compiler(graph, inputs):
        graphs.append(graph)
        return graph.forward

    counting = copy.copy(backend)
    # torch takes a function wherever it takes a compiler's name.
    counting.__dict__["compile_backend"] = compiler
    again = check(counting, tensors, 1e-5)
    blocks = len(load_model(DATA / "checkpoint", backend).compiled_regions())
    assert 0 < len(graphs) < blocks
    first = len(graphs)
    again()
    assert len(graphs) == first


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_compiler")
def test_backends_own_compiler(backend, tensors):
    check(backend, tensors, 1e-3)
