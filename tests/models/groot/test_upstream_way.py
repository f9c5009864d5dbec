"""What the benchmarks compare with computes the same losses, gradients and actions."""

from __future__ import annotations

import functools

import pytest
import torch

from benchmarks import groot_model, groot_operations
from benchmarks.upstream_groot import Upstream


def test_losses_gradients_and_actions(backend):
    model = groot_model.build(backend).train()
    upstream, batch = Upstream(model).train(), groot_model.batch(2)
    batch["embodiment_id"], batch["embodiment_ids"] = torch.tensor([2, 5]), [2, 5]
    found = []
    for way, head in ((upstream, upstream.action_head), (model, model.action_head)):
        torch.manual_seed(0)
        loss = way(batch)["action_loss"]
        loss.backward()
        norms = {name: p.grad.norm() for name, p in head.named_parameters() if p.grad is not None}
        found.append((loss.detach(), norms, way.get_action({**batch, "action": None}).clone()))
    (loss, norms, actions), (our_loss, our_norms, our_actions) = found
    torch.testing.assert_close(our_loss, loss, atol=1e-6, rtol=0)
    torch.testing.assert_close(our_actions, actions, atol=1e-5, rtol=0)
    assert our_norms.keys() == norms.keys()
    for name, norm in norms.items():
        if not name.endswith("attn1.to_k.bias"):  # nothing but rounding: softmax does not see it
            torch.testing.assert_close(our_norms[name], norm, rtol=1e-3, atol=1e-7, msg=name)


def test_operations_by_part(backend):
    """The parts are found by name in both models, in every kind of step, and ours leaves out what is thrown away."""
    model = groot_model.build(backend).train()
    upstream, batch = Upstream(model).train(), groot_model.batch(1)
    for step in (
        lambda way: way(batch)["action_loss"].backward(),
        lambda way: way.get_action({**batch, "action": None}),
    ):
        theirs, ours = (groot_operations.count(functools.partial(step, way)) for way in (upstream, model))
        for part in ("vision tower", "language layers", "self-attention on the features"):
            assert theirs[part] == ours[part] > 0, part
        assert theirs["language head"] > ours["language head"] == 0
        assert theirs[groot_operations.REST] > ours[groot_operations.REST] > 0
        assert sum(ours.values()) == pytest.approx(2 * ours["all"])
