"""A chip's fused operators in the model: the recorded numbers stay, and every layer takes them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.nn import functional

from vla_backend import FusedKernels
from vla_train.nn import ReplayDraws
from vla_train.nn.kernels import use_kernels


@pytest.fixture
def fused():
    """Kernels composed otherwise than the libraries compose them, which count their calls."""
    calls: Counter[str] = Counter()

    def attention(query, key, value, mask):
        calls["attention"] += 1
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        return scores.softmax(-1) @ value

    def rms_norm(x, weight, eps):
        calls["rms_norm"] += 1
        return functional.rms_norm(x, weight.shape, weight, eps)

    def rotary(x, cos, sin):
        calls["rotary"] += 1
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    return FusedKernels(attention, rms_norm, rotary), calls


def test_recorded_losses_and_gradients_with_fused_kernels(golden, tiny_config, build, recorded_batch, fused):
    kernels, calls = fused
    found, model = golden("full_joint_state"), build(tiny_config())
    used = use_kernels(model, kernels)
    model.draws = ReplayDraws.from_tensors(found.tensors, "fwd.")
    losses = model(recorded_batch())
    for name, loss in losses.items():
        torch.testing.assert_close(loss.reshape(1), found[f"fwd.out.{name}"], rtol=1e-5, atol=0)
    sum(losses.values()).backward()
    norm = found["fwd.gradnorm.action_model.action_encoder.layer1.weight"].item()
    assert model.action_model.action_encoder.layer1.weight.grad.norm().item() == pytest.approx(norm, rel=1e-4)
    assert min(calls[name] for name in ("attention", "rms_norm", "rotary")) > 0
    assert used["attention"] > 0
    assert used["rms_norm"] > 0


def test_a_chip_without_any_changes_nothing(tiny_config, build):
    model = build(tiny_config())
    before = {name: module.forward for name, module in model.named_modules()}
    assert use_kernels(model, FusedKernels()) == {}
    assert before == {name: module.forward for name, module in model.named_modules()}


def test_a_norm_whose_weight_has_another_dtype_stays_the_librarys(fused):
    class RMSNorm(torch.nn.Module):
        eps = 1e-6

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x

    kernels, calls = fused
    norm = RMSNorm()
    assert use_kernels(norm, kernels) == {"rms_norm": 1}
    norm(torch.ones(2, 4, dtype=torch.bfloat16))
    assert calls["rms_norm"] == 0
    norm(torch.ones(2, 4))
    assert calls["rms_norm"] == 1
