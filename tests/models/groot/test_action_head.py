"""The action head against recordings of the published implementation."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from vla_groot.action_head import ActionHead
from vla_groot.architecture import Architecture
from vla_groot.category import CategoryLinear, Embodiments
from vla_groot.errors import BatchError
from vla_groot.features import Features, Tokens, encode_context
from vla_train.nn import Draws, ReplayDraws

from .conftest import DATA, near, part


def alternate(**changes) -> ActionHead:
    head = ActionHead(Architecture.read(DATA / "checkpoint").updated(changes))
    head.load_state_dict(part(load_file(DATA / "checkpoint" / "model.safetensors"), "action_head."))
    return head.eval()


def without_dropout(head: ActionHead) -> ActionHead:
    for module in head.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return head


def plain() -> ActionHead:
    base = Architecture.read(DATA / "checkpoint")
    config = base.updated(
        {
            "use_alternate_vl_dit": False,
            "diffusion_model_cfg": {**base.diffusion_model_cfg, "num_layers": 3},
            "use_vlln": False,
            "add_pos_embed": False,
            "vl_self_attention_cfg": None,
            "state_history_length": 2,
            "max_num_embodiments": 4,
            "action_horizon": 8,
            "num_inference_timesteps": 3,
        }
    )
    head = ActionHead(config)
    head.load_state_dict(load_file(DATA / "head_plain_state.safetensors"))
    return head.eval()


def features(recorded) -> Features:
    return Features(
        recorded["in.backbone_features"].clone(), recorded["in.backbone_attention_mask"], recorded["in.image_mask"]
    )


def loss(head: ActionHead, recorded, draws=None):
    draws = draws or ReplayDraws.from_tensors(recorded)
    names = ("state", "action", "action_mask", "embodiment_id")
    return head.loss(features(recorded), *(recorded[f"in.{name}"] for name in names), draws=draws)


def check_gradients(head: ActionHead, wanted: dict[str, float]) -> None:
    found = {name: parameter.grad for name, parameter in head.named_parameters()}
    assert set(found) == set(wanted)
    for name, norm in wanted.items():
        gradient = found[name]
        if norm is None:
            assert gradient is None
        elif name.endswith("attn1.to_k.bias"):  # exactly zero but for rounding
            assert gradient.norm() < 1e-6
        else:
            assert abs(gradient.norm().item() - norm) <= 1e-5 * norm + 1e-8, name


@pytest.mark.parametrize(
    ("name", "head"), [("head_alt_loss_eval", alternate), ("head_plain_loss_eval", plain)], ids=["alternate", "plain"]
)
def test_loss_and_gradients(tensors, facts, name, head):
    recorded, head = tensors(name), head()
    result = loss(head, recorded)
    near(result.loss, recorded["out.loss"][0], 1e-6)
    near(result.action_loss, recorded["out.action_loss"], 3e-5)  # squares of errors up to 6
    near(result.hidden, recorded["out.backbone_features"])
    near(result.state, recorded["out.state_features"])
    result.loss.backward()
    check_gradients(head, facts(name)["grad_norm"])


def test_every_intermediate(tensors):
    recorded, head, seen = tensors("head_alt_loss_eval"), alternate(), {}
    watched = {
        "vlln": head.vlln,
        "vl_self_attention": head.vl_self_attention,
        "state_encoder": head.state_encoder,
        "action_encoder": head.action_encoder,
        "timestep_encoder": head.model.timestep_encoder,
        "dit_out": head.model,
        **{f"block{index}": block for index, block in enumerate(head.model.transformer_blocks)},
    }
    for name, module in watched.items():
        module.register_forward_hook(lambda _, __, output, name=name: seen.update({name: output}))
    loss(head, recorded)
    for name, value in seen.items():
        near(value, recorded[f"mid.{name}.0"], 3e-5)  # another processor's sine is off by up to 5e-6 already
    assert set(watched) == set(seen)


def test_training_with_state_dropout(tensors, facts):
    name = "head_alt_loss_train_statedrop"
    recorded, head = tensors(name), without_dropout(alternate()).train()
    result = loss(head, recorded)
    near(result.loss, recorded["out.loss"][0], 1e-6)
    near(result.state, recorded["out.state_features"])
    result.loss.backward()
    check_gradients(head, facts(name)["grad_norm"])


def test_actions(tensors):
    recorded = tensors("head_alt_action")
    draws = ReplayDraws.from_tensors(recorded)
    found = alternate().sample(features(recorded), recorded["in.state"], recorded["in.embodiment_id"], draws=draws)
    near(found, recorded["out.action_pred"])
    assert not draws.remaining


def test_actions_in_bfloat16(tensors):
    recorded = tensors("head_alt_action_bf16")
    inputs = features(recorded)
    inputs.hidden = inputs.hidden.bfloat16()
    found = (
        alternate()
        .bfloat16()
        .sample(
            inputs,
            recorded["in.state"].bfloat16(),
            recorded["in.embodiment_id"],
            draws=ReplayDraws.from_tensors(recorded),
        )
    )
    assert found.dtype == torch.bfloat16
    near(found.float(), recorded["out.action_pred"].float(), 0.05)


def test_plain_head_samples_and_ignores_masks(tensors):
    recorded, head = tensors("head_plain_loss_eval"), plain()
    ids, state = recorded["in.embodiment_id"], recorded["in.state"]
    first = head.sample(features(recorded), state, ids, draws=Draws(torch.Generator().manual_seed(0)))
    masked = features(recorded)
    masked.attention_mask = torch.zeros_like(masked.attention_mask)
    second = head.sample(masked, state, ids, draws=Draws(torch.Generator().manual_seed(0)))
    assert first.shape == (3, 8, 18)
    assert torch.equal(first, second)


def test_sample_without_text_or_image_tokens_is_finite(tensors):
    recorded, head = tensors("head_alt_action"), alternate()
    inputs = features(recorded)
    inputs.image_mask = torch.zeros_like(inputs.image_mask)
    found = head.sample(inputs, recorded["in.state"], recorded["in.embodiment_id"], draws=Draws())
    assert torch.isfinite(found).all()


def test_training_times(tensors):
    recorded = tensors("sample_time")
    torch.manual_seed(77)
    head = alternate()
    torch.manual_seed(77)
    times = head.sample_time(4096, torch.device("cpu"), Draws())
    near(times, recorded["t"], 1e-7)
    assert torch.equal((times * 1000).long(), recorded["t_discretized"])


def test_dropout_stream_of_a_seed(tensors, facts):
    """Informational upstream, but the stream is the same here as long as every dropout draws in the same order."""
    name = "head_alt_loss_train_dropout_seeded"
    recorded, head = tensors(name), alternate().train()
    torch.manual_seed(facts(name)["seed"])
    near(loss(head, recorded, Draws()).loss, recorded["out.loss"][0], 1e-5)


class TestRealTimeChunking:
    def sample(self, tensors, **options):
        recorded, head = tensors("head_alt_action"), alternate()
        previous = torch.randn(3, 16, 18, generator=torch.Generator().manual_seed(5))
        wanted = {"action_horizon": 10, "rtc_overlap_steps": 6, "rtc_frozen_steps": 2, "rtc_ramp_rate": 3.0, **options}
        draws = ReplayDraws.from_tensors(recorded)
        ids = recorded["in.embodiment_id"]
        return previous, head.sample(
            features(recorded), recorded["in.state"], ids, draws=draws, previous=previous, options=wanted
        )

    def test_frozen_steps_are_those_of_the_previous_chunk(self, tensors):
        previous, found = self.sample(tensors)
        assert torch.equal(found[:, :2], previous[:, 4:6])
        assert not torch.equal(found[:, 2:6], previous[:, 6:10])

    def test_everything_overlapping_and_frozen(self, tensors):
        previous, found = self.sample(
            tensors, action_horizon=16, rtc_overlap_steps=16, rtc_frozen_steps=16, rtc_ramp_rate=1.0
        )
        assert torch.equal(found, previous)

    def test_ramp(self):
        from vla_groot.real_time import RealTimeChunk

        strength = RealTimeChunk(10, 6, 2, 3.0).strength(torch.zeros(1, 8, 1))[0, :, 0]
        ramp = (1 - torch.exp(-3.0 * torch.linspace(0, 1, 6))) / (1 - torch.exp(torch.tensor(-3.0)))
        near(strength, torch.tensor([0, 0, *ramp[1:5].tolist(), 1, 1]), 1e-6)

    @pytest.mark.parametrize("options", [{"rtc_ramp_rate": None}, {"rtc_frozen_steps": 7}, {"action_horizon": 17}])
    def test_bad_options(self, tensors, options):
        with pytest.raises(BatchError, match=r"rtc_|action_horizon"):
            self.sample(tensors, **options)


def test_wrong_shapes_are_named(tensors):
    recorded = tensors("head_alt_loss_eval")
    recorded["in.state"] = recorded["in.state"][..., :7]
    with pytest.raises(BatchError, match=r"state is \(3, 1, 7\), \(3, 1, 20\) needed"):
        loss(alternate(), recorded)
    recorded = tensors("head_alt_loss_eval")
    recorded["in.embodiment_id"] = torch.tensor([2, 12, 1])
    with pytest.raises(BatchError, match="Embodiment id 12"):
        loss(alternate(), recorded)


def test_category_layer_equals_gathered_weights():
    torch.manual_seed(0)
    layer, x, ids = CategoryLinear(5, 3, 4), torch.randn(6, 2, 3), torch.tensor([4, 1, 1, 0, 4, 4])
    gathered = torch.bmm(x, layer.W[ids]) + layer.b[ids].unsqueeze(1)
    near(layer(x, Embodiments(ids, x.device, 5)), gathered, 1e-6)
    near(layer(x[:1], Embodiments([4], x.device, 5)), gathered[:1], 1e-6)


@pytest.mark.parametrize("make", [lambda **c: alternate(**c), plain], ids=["alternate", "plain"])
def test_masked_feature_padding_changes_nothing(tensors, make):
    """By default padding is seen, as published; with the switch its content does not matter."""
    recorded = tensors("head_alt_loss_eval" if make is not plain else "head_plain_loss_eval")
    garbage = {**recorded, "in.backbone_features": recorded["in.backbone_features"].clone()}
    garbage["in.backbone_features"][~recorded["in.backbone_attention_mask"]] = 3.0
    assert not recorded["in.backbone_attention_mask"].all()
    head = make()
    assert abs(loss(head, recorded).loss - loss(head, garbage).loss) > 1e-4
    head.config.mask_feature_padding = True
    near(loss(head, recorded).loss, loss(head, garbage).loss, 1e-6)


def test_strict_action_padding(tensors):
    """With the switch, what stands at padded steps and dimensions does not matter."""
    recorded = tensors("head_alt_loss_eval")
    mask = recorded["in.action_mask"].bool()
    garbage = {**recorded, "in.action": torch.where(mask, recorded["in.action"], torch.tensor(7.0))}
    for strict in (False, True):
        head = alternate(strict_action_padding_mask=strict)
        assert (abs(loss(head, recorded).loss - loss(head, garbage).loss) < 1e-6) == strict
    head = alternate(strict_action_padding_mask=True)
    ids, state = recorded["in.embodiment_id"], recorded["in.state"]
    found = [
        head.sample(features(recorded), state, ids, draws=Draws(torch.Generator().manual_seed(0)), action_mask=given)
        for given in (None, mask, mask.any(-1))
    ]
    assert not torch.allclose(found[0], found[1], atol=1e-3)
    assert not torch.allclose(found[0], found[2], atol=1e-3)


class TestTokens:
    VISIBLE = torch.tensor([[False, True, True, False, True], [True, False, False, False, False]])

    def test_only_visible_tokens_are_picked_and_in_their_order(self):
        hidden = torch.arange(20.0).view(2, 5, 2)
        found = Tokens.of(self.VISIBLE, hidden.device)
        assert torch.equal(found.of_features(hidden)[0], hidden[0, [1, 2, 4]])
        assert torch.equal(found.of_features(hidden)[1, :1], hidden[1, :1])
        assert found.mask.tolist() == [[True, True, True], [True, False, False]]

    def test_no_mask_where_none_is_needed(self):
        assert Tokens.of(self.VISIBLE[:1], torch.device("cpu")).mask is None

    def test_a_batch_without_any_keeps_one_token_that_nobody_sees(self):
        found = Tokens.of(torch.zeros(2, 5, dtype=torch.bool), torch.device("cpu"))
        assert found.count == 1
        assert not found.mask.any()

    def test_blocks_project_no_more_than_they_see(self, tensors):
        recorded = tensors("head_alt_loss_eval")
        head, given = alternate(), features(recorded)
        context = encode_context(head.config, head.model.transformer_blocks, given, head.process(given))
        lengths = [None if pair is None else pair[0].shape[2] for pair in context.keys_values]
        image = given.attention_mask & given.image_mask
        text = given.attention_mask & ~given.image_mask
        most = [int(mask.sum(1).max()) for mask in (text, image)]
        assert lengths == [most[0], None, most[1], None, most[0], None]
