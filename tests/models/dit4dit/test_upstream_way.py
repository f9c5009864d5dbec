"""What the benchmarks compare with gives upstream's recorded numbers, so the ratios are ratios of equal results."""

from __future__ import annotations

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d

from benchmarks import measure
from benchmarks.upstream_dit4dit import Upstream
from vla_train.nn import Draws, ReplayDraws


def test_losses_are_the_recorded_ones(golden, tiny_config, build, recorded_batch):
    found, model = golden("full_joint_state"), build(tiny_config())
    model.draws = ReplayDraws.from_tensors(found.tensors, "fwd.")
    losses = Upstream(model)(recorded_batch())
    assert model.draws.remaining == 0
    assert losses["action_loss"].item() == pytest.approx(found["fwd.out.action_loss"].item(), rel=1e-5)
    assert losses["future_video_loss"].item() == pytest.approx(found["fwd.out.future_video_loss"].item(), rel=1e-5)


@pytest.mark.parametrize("mode", ["joint", "action"])
def test_gradients_and_actions_equal_ours(tiny_config, build, recorded_batch, mode):
    model, batch = build(tiny_config(mode=mode)), recorded_batch()
    gradients = []
    for way in (Upstream(model), model):
        model.draws = Draws()
        model.zero_grad()
        torch.manual_seed(5)
        sum(way(batch).values()).backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)
    torch.manual_seed(6)
    expected = Upstream(model).predict_action(batch)
    torch.manual_seed(6)
    actions = model.predict_action({**batch, "images": batch["images"][:, :1]})
    torch.testing.assert_close(actions, expected.clone(), rtol=0, atol=1e-5)


def test_upstreams_way_does_upstreams_work(tiny_config, build, recorded_batch):
    model, ran = build(tiny_config()), []
    extractor = model.backbone_interface.extractor
    extractor.text_encoder.lm_head.register_forward_hook(lambda *_: ran.append("lm_head"))
    extractor.vae.quant_conv.register_forward_hook(lambda *_: ran.append("vae"))
    extractor.transformer.proj_out.register_forward_hook(lambda *_: ran.append("transformer"))
    layers = []
    extractor.vae.encoder.conv_in.register_forward_hook(lambda module, *_: layers.append(type(module)))
    Upstream(model)(recorded_batch())
    assert set(layers) == {WanCausalConv3d}
    model(recorded_batch())
    assert layers[-1] is not WanCausalConv3d
    del ran[7:]
    # Two samples: prompts and conditions one by one, then the clip of the target as a batch.
    assert ran == ["lm_head"] * 2 + ["vae"] * 2 + ["transformer", "vae", "transformer"]


def test_peak_counts_what_is_alive_at_once():
    def graph():
        value = torch.ones(1000, requires_grad=True)
        value.sin().sin().sin().sum().backward()

    assert measure.peak_bytes(lambda: (torch.ones(1000) + 1) + 1) == pytest.approx(8000, rel=0.01)
    # The three inputs that the backward pass needs, its incoming and its outgoing gradient.
    assert measure.peak_bytes(graph) == pytest.approx(20000, rel=0.01)


def test_turns_are_taken_in_order():
    calls = []
    taken = measure.seconds({name: lambda name=name: calls.append(name) for name in "ab"}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert {name: len(values) for name, values in taken.items()} == {"a": 2, "b": 2}
    assert measure.ratio({"a": [4.0, 9.0, 6.0], "b": [2.0, 3.0, 2.0]}, "a", "b") == 3.0
