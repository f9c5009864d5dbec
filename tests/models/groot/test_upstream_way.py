"""What the benchmarks compare with computes the same losses, gradients and actions."""

from __future__ import annotations

import torch

from benchmarks import groot_model
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
