"""The action head against recorded upstream runs: loss, gradients, sampled actions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from diffusers.models.attention import FeedForward as LibraryFeedForward

from vla_dit4dit.action_head import FlowMatchingActionHead
from vla_dit4dit.config import ACTIVATIONS, ActionHeadConfig, DiT4DiTConfig
from vla_dit4dit.errors import BatchError
from vla_dit4dit.upstream_config import translate
from vla_train.config.typed import Builder
from vla_train.nn import DiTSettings, ReplayDraws
from vla_train.nn.dit import FeedForward

CASES = ("state_interleave", "nostate_interleave", "state_cross_only_sinpos", "injected_t")


def head_config(upstream: dict) -> ActionHeadConfig:
    native = translate({"framework": {"name": "DiT4DiT", "action_model": upstream}})
    builder = Builder(lambda _: ("", None))
    config = builder.build(ActionHeadConfig, native["model"]["action_head"])
    assert not builder.problems
    return config


def load(golden, case):
    found = golden(f"action_head_{case}")
    head = FlowMatchingActionHead(head_config(found.facts["config"])).eval()
    head.load_state_dict({key[3:]: value for key, value in found.tensors.items() if key.startswith("sd.")})
    return found, head


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients(golden, case):
    found, head = load(golden, case)
    draws = ReplayDraws.from_tensors(found.tensors, "fwd.")
    loss = head.loss(
        found["in.vl_embs"], found["in.actions"], found["in.action_mask"], found.get("in.state"), draws=draws
    )
    torch.testing.assert_close(loss.reshape(1), found["fwd.out.loss"], rtol=1e-5, atol=0)
    assert draws.remaining == 0
    loss.backward()
    for name, parameter in head.named_parameters():
        norm = found[f"fwd.gradnorm.{name}"].item()
        if norm == -1:
            assert parameter.grad is None, name
            continue
        assert parameter.grad.norm().item() == pytest.approx(norm, rel=1e-4, abs=1e-6), name
        full = found.get(f"fwd.grad.{name}")
        if full is not None:
            torch.testing.assert_close(parameter.grad, full, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("case", CASES[:3])
def test_sampled_actions(golden, case):
    found, head = load(golden, case)
    draws = ReplayDraws.from_tensors(found.tensors, "pred.")
    actions = head.sample(found["in.vl_embs"], found.get("in.state"), draws=draws)
    torch.testing.assert_close(actions, found["pred.out.actions"], rtol=1e-4, atol=1e-5)
    assert draws.remaining == 0


@pytest.mark.parametrize("size", ["libero/DiT-B", "libero/DiT-L", "robocasa/DiT-B", "robocasa/DiT-L"])
def test_full_size_names_and_shapes(data_folder, size):
    facts = json.loads((data_folder / "action_head_shapes.json").read_text())[size]
    config = ActionHeadConfig(size=size.split("/")[1])
    if size.startswith("robocasa"):
        config = replace(config, action_dim=32, state_dim=64, action_horizon=16)
    with torch.device("meta"):
        head = FlowMatchingActionHead(config, cross_attention_dim=2048)
    assert {name: list(value.shape) for name, value in head.state_dict().items()} == facts["state_dict"]
    assert sum(parameter.numel() for parameter in head.parameters()) == facts["params"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_the_librarys(activation):
    torch.manual_seed(0)
    ours = FeedForward(DiTSettings(2, 8, 1, 16, 16, activation_fn=activation))
    library = LibraryFeedForward(16, activation_fn=activation)
    library.load_state_dict(ours.state_dict())
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(ours(x), library(x))
    assert not [
        p for p in DiT4DiTConfig(action_head=ActionHeadConfig(activation_fn=activation)).problems() if "fn" in p[0]
    ]


def test_copies_share_keys_and_values_exactly(golden):
    """R copies at once give the mean of R single passes with the same draws."""
    found, head = load(golden, "state_interleave")
    noise, beta = torch.randn(9, 8, 8), torch.rand(9)
    inputs = (found["in.vl_embs"], found["in.actions"], torch.ones(3, 8, 8, dtype=torch.bool), found["in.state"])
    together = head.loss(*inputs, draws=ReplayDraws([("randn", noise), ("beta", beta)]), repeats=3)
    single = [
        head.loss(*inputs, draws=ReplayDraws([("randn", noise[i : i + 3]), ("beta", beta[i : i + 3])]))
        for i in (0, 3, 6)
    ]
    torch.testing.assert_close(together, torch.stack(single).mean())


def test_three_blocks_without_positions_and_state_in_upstreams_own_file(golden):
    """What a head without state and positions needs of upstream's file."""
    upstream = golden("action_head_state_interleave").facts["config"]
    changes = {"state_dim": None, "add_pos_embed": False, "action_horizon": 4, "future_action_window_size": 3}
    blocks = {"diffusion_model_cfg": {**upstream["diffusion_model_cfg"], "num_layers": 3}}
    head = FlowMatchingActionHead(head_config({**upstream, **changes, **blocks}))
    assert sum(parameter.numel() for parameter in head.parameters()) == 64216


def test_without_positions_and_state_and_with_another_horizon(golden):
    found = golden("action_head_state_interleave")
    config = replace(
        head_config(found.facts["config"]),
        add_pos_embed=False,
        state_dim=None,
        action_horizon=4,
        num_inference_timesteps=10,
    )
    head = FlowMatchingActionHead(config).eval()
    assert not [name for name in head.state_dict() if name.startswith(("position_embedding", "state_encoder"))]
    draws = ReplayDraws([("randn", torch.randn(3, 4, 8)), ("beta", torch.rand(3))])
    # The last four of eight steps are the target.
    loss = head.loss(found["in.vl_embs"], found["in.actions"], found["in.action_mask"], draws=draws)
    draws = ReplayDraws(draws.recorded)
    cut = head.loss(found["in.vl_embs"], found["in.actions"][:, 4:], found["in.action_mask"][:, 4:], draws=draws)
    torch.testing.assert_close(loss, cut)
    # Without positions the velocity of a token does not depend on the order of the tokens.
    noise = torch.randn(3, 4, 8)
    forward = head.sample(found["in.vl_embs"], draws=ReplayDraws([("randn", noise)]))
    flipped = head.sample(found["in.vl_embs"], draws=ReplayDraws([("randn", noise.flip(1))]))
    torch.testing.assert_close(forward, flipped.flip(1), rtol=1e-4, atol=1e-5)


def test_weights_in_bfloat16_compute_in_float32(golden):
    found, head = load(golden, "state_interleave")
    expected = found["fwd.out.loss"].item()
    head.bfloat16()
    draws = ReplayDraws.from_tensors(found.tensors, "fwd.")
    loss = head.loss(found["in.vl_embs"], found["in.actions"], found["in.action_mask"], found["in.state"], draws=draws)
    assert loss.dtype == torch.float32
    # Only the weights are rounded: within 2 %, and with gradients in the weights' dtype.
    assert loss.item() == pytest.approx(expected, rel=0.02)
    loss.backward()
    assert head.action_encoder.layer1.weight.grad.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("features", (3, 10, 47), "cross_attention_dim"),
        ("actions", (3, 7, 8), "action_horizon"),
        ("actions", (3, 8, 7), "action_dim"),
        ("action_mask", (3, 8, 7), "action_mask"),
        ("state", (3, 16), "state_dim"),
    ],
)
def test_wrong_shapes(golden, name, shape, message):
    found, head = load(golden, "state_interleave")
    inputs = {
        "features": found["in.vl_embs"],
        "actions": found["in.actions"],
        "action_mask": found["in.action_mask"],
        "state": found["in.state"],
    }
    inputs[name] = torch.zeros(shape)
    with pytest.raises(BatchError, match=message):
        head.loss(**inputs, draws=ReplayDraws.from_tensors(found.tensors, "fwd."))
