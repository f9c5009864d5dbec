"""Training modes, frozen networks, precision, recomputation and repeatability."""

from __future__ import annotations

import pytest
import torch

from vla_dit4dit.errors import BatchError
from vla_dit4dit.model import DiT4DiT, clip_frames
from vla_dit4dit.video_loss import pixel_loss
from vla_train.nn import ReplayDraws


@pytest.fixture
def recorded_losses(golden):
    found = golden("full_joint_state")
    return found["fwd.out.action_loss"].item(), found["fwd.out.future_video_loss"].item()


def replay(golden, *skip: int) -> ReplayDraws:
    draws = ReplayDraws.from_tensors(golden("full_joint_state").tensors, "fwd.")
    return ReplayDraws(draw for index, draw in enumerate(draws.recorded) if index not in skip)


def trained(model: DiT4DiT) -> set[str]:
    return {".".join(name.split(".")[:3]) for name, value in model.named_parameters() if value.grad is not None}


def test_action_mode(golden, tiny_config, build, recorded_batch, recorded_losses):
    """Only the head; the future frames are neither encoded nor drawn for; one pass up to the feature block."""
    model, ran = build(tiny_config(mode="action")), []
    for block in model.backbone_interface.extractor.transformer.transformer_blocks:
        block.register_forward_hook(lambda *_: ran.append(1))
    # Draws 3 to 7 belong to the video loss.
    model.draws = replay(golden, 3, 4, 5, 6, 7)
    losses = model(recorded_batch())
    assert list(losses) == ["action_loss"]
    assert losses["action_loss"].item() == pytest.approx(recorded_losses[0], rel=1e-5)
    assert (len(ran), model.draws.remaining) == (3, 0)
    losses["action_loss"].backward()
    assert all(name.startswith("action_model") for name in trained(model))
    assert not any(p.requires_grad for p in model.backbone_interface.parameters())


def test_unequal_masks_weigh_by_what_they_keep(golden, tiny_config, build, recorded_batch):
    """Two halves with different masks, weighed by `loss_counts`, give the loss of the whole."""
    config = tiny_config(mode="action")
    config.repeated_diffusion_steps = 1
    model, whole = build(config), recorded_batch()
    whole["action_mask"] = whole["action_mask"].clone()
    whole["action_mask"][1, 3:] = False
    halves = [{key: value[i : i + 1] for key, value in whole.items()} for i in range(2)]
    noise, time = torch.randn(2, 8, 8), torch.rand(2)
    features = torch.randn(2, 16, 48)

    def loss(batch, rows):
        recorded = [("randn", noise[rows]), ("beta", time[rows])]
        return model.action_model.loss(
            features[rows],
            batch["action"].float(),
            batch["action_mask"],
            batch["state"].float(),
            draws=ReplayDraws(recorded),
        )

    counts = [model.loss_counts(half)["action_loss"] for half in halves]
    assert counts[0] != counts[1]
    parts = [loss(half, slice(i, i + 1)) * counts[i] / sum(counts) for i, half in enumerate(halves)]
    assert sum(parts).item() == pytest.approx(loss(whole, slice(0, 2)).item(), rel=1e-5)


def test_video_mode(golden, tiny_config, build, recorded_batch, recorded_losses):
    """Only the video loss: no head, no feature pass."""
    model, ran = build(tiny_config(mode="video")), []
    for block in model.backbone_interface.extractor.transformer.transformer_blocks:
        block.register_forward_hook(lambda *_: ran.append(1))
    model.draws = replay(golden, 8, 9)
    losses = model(recorded_batch())
    assert list(losses) == ["future_video_loss"]
    assert losses["future_video_loss"].item() == pytest.approx(recorded_losses[1], rel=1e-5)
    assert (len(ran), model.draws.remaining) == (4, 0)
    losses["future_video_loss"].backward()
    assert trained(model) == {"backbone_interface.extractor.transformer"}
    assert model.action_model is None
    assert not model.predicts_actions
    assert model.loss_counts(recorded_batch()) == {}
    with pytest.raises(BatchError, match="no action head"):
        model.predict_action(recorded_batch())
    with pytest.raises(BatchError, match="without future frames"):
        model({**recorded_batch(), "images": recorded_batch()["images"][:, :1]})


def test_joint_without_future_frames(tiny_config, build, recorded_batch):
    model, batch = build(tiny_config()), recorded_batch()
    batch["images"] = batch["images"][:, :1]
    assert list(model(batch)) == ["action_loss"]


def test_clip_of_observed_frames_only_has_loss_zero(tiny_config, build, recorded_batch):
    """A clip too short for a future latent frame has nothing to supervise, and draws nothing for it."""
    model = build(tiny_config(), clip_frames=3)
    shapes = [("randn", (1, 16, 1, 4, 8))] * 2 + [("randn", (2, 16, 1, 4, 8)), ("randn", (8, 8, 8)), ("beta", (8,))]
    model.draws = ReplayDraws((kind, torch.rand(shape)) for kind, shape in shapes)
    losses = model(recorded_batch())
    assert losses["future_video_loss"].item() == 0.0
    assert model.draws.remaining == 0


KEYWORDS = {"absolute": True, "range_by_minimum": False}


def test_pixel_losses_where_fewer_frames_are_decoded_than_given():
    decoded, future = torch.rand(2, 3, 5, 4, 4), torch.rand(2, 3, 5, 4, 4)
    unit = (decoded + 1) / 2
    aligned = pixel_loss(decoded, future, last_frames=False, **KEYWORDS)
    torch.testing.assert_close(aligned, (unit[:, :, 1:] - future[:, :, :4]).abs().mean())
    shifted = pixel_loss(decoded, future, last_frames=True, **KEYWORDS)
    torch.testing.assert_close(shifted, (unit - future).abs().mean())
    # As many as wanted: nothing to choose.
    both = [pixel_loss(decoded, future[:, :, :4], last_frames=last, **KEYWORDS) for last in (False, True)]
    assert both[0] == both[1] == aligned
    # The observed frame alone.
    assert pixel_loss(decoded[:, :, :1], future, last_frames=False, **KEYWORDS) == 0
    alone = pixel_loss(decoded[:, :, :1], future, last_frames=True, **KEYWORDS)
    torch.testing.assert_close(alone, (unit[:, :, :1] - future).abs().mean())


@pytest.mark.parametrize("loss_type", ["pixel_l1", "pixel_mse", "latent_mse"])
@pytest.mark.parametrize("frames", [2, 3])
def test_sampled_losses_of_clips_too_short_for_a_future(tiny_config, build, recorded_batch, loss_type, frames):
    """A clip of 2 or 3 frames is one latent frame: nothing to compare, and no loss that is not a number."""
    model, batch = build(tiny_config(backbone={"future_loss_type": loss_type}), clip_frames=frames), recorded_batch()
    batch["images"] = batch["images"][:, :frames]
    assert model(batch)["future_video_loss"].item() == 0
    # Only flow matching makes a target of a clip that is shorter than configured.
    model = build(tiny_config(backbone={"future_loss_type": "latent_mse"}))
    assert model(batch)["future_video_loss"].item() == 0
    assert build(tiny_config())(batch)["future_video_loss"].item() > 0.5


def test_masks_of_the_window_alone(tiny_config, build, recorded_batch):
    """A mask of H steps belongs to the last H actions."""
    model, batch = build(tiny_config(mode="action")), recorded_batch()
    longer = {**batch, "action": torch.cat([torch.randn(2, 4, 8), batch["action"]], dim=1)}
    losses = []
    for each in (batch, longer):
        torch.manual_seed(3)
        losses.append(model(each)["action_loss"])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("mode", ["joint", "action", "video"])
def test_detached_networks_keep_working(golden, tiny_config, build, recorded_batch, mode):
    skip = {"joint": (), "action": (3, 4, 5, 6, 7), "video": (8, 9)}[mode]
    model = build(tiny_config(mode=mode))
    complete = model.state_dict()
    model.draws = replay(golden, *skip)
    expected = model(recorded_batch())
    frozen = model.detach_frozen()
    assert model.detach_frozen().keys() == frozen.keys()
    parts = {name.rsplit(".", 1)[1] for name in frozen}
    assert parts == {"text_encoder", "vae"} | ({"transformer"} if mode == "action" else set())
    assert not [key for key in model.state_dict() if key.startswith(tuple(frozen))]
    assert not [name for name, _ in model.named_parameters() if name.startswith(tuple(frozen))]
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert list(model.full_state_dict()) == list(complete)
    model.draws = replay(golden, *skip)
    assert model(recorded_batch()) == expected
    # Training mode does not reach them: they have no randomness to switch on.
    model.train()
    assert not any(network.training for network in frozen.values())


def test_frozen_networks_stay_in_evaluation_mode(tiny_config, build):
    model = build(tiny_config()).train()
    extractor = model.backbone_interface.extractor
    assert extractor.transformer.training
    assert not extractor.vae.training
    assert not extractor.text_encoder.training


def test_no_graph_where_no_gradient_is_wanted(golden, tiny_config, build, recorded_batch):
    model, graphs = build(tiny_config()), {}
    extractor = model.backbone_interface.extractor
    block = extractor.transformer.transformer_blocks[0]
    block.register_forward_hook(lambda _m, _i, output: graphs.setdefault("block", []).append(output.requires_grad))
    extractor.vae.encoder.register_forward_hook(
        lambda _m, _i, output: graphs.setdefault("vae", []).append(output.requires_grad)
    )
    model(recorded_batch())
    # The feature pass has none, the flow-matching pass has one.
    assert graphs["block"] == [False, True]
    assert not any(graphs["vae"])
    assert not any(value.requires_grad for value in extractor.prompts.cache.values())
    graphs.clear()
    model.predict_action(recorded_batch())
    assert graphs["block"] == [False]


def test_gradients_reach_a_text_encoder_that_is_trained(golden, tiny_config, build, recorded_batch):
    model = build(tiny_config(backbone={"train_text_encoder": True}))
    model.draws = replay(golden)
    sum(model(recorded_batch()).values()).backward()
    embedding = model.backbone_interface.extractor.text_encoder.model.language_model.embed_tokens
    assert embedding.weight.grad.norm() > 0
    assert [name.rsplit(".", 1)[1] for name in model.frozen()] == ["vae"]


def test_prompt_cache_is_bounded_and_used(tiny_config, build):
    model, ran = build(tiny_config(backbone={"prompt_cache_size": 2})), []
    extractor = model.backbone_interface.extractor
    extractor.text_encoder.model.language_model.register_forward_hook(lambda *_: ran.append(1))
    embeddings, index = extractor.prompts.unique(["a", "b", "a"], torch.device("cpu"))
    assert (len(ran), embeddings.shape[0], index.tolist()) == (2, 2, [0, 1, 0])
    extractor.prompts.unique(["a", "c"], torch.device("cpu"))
    assert (len(ran), list(extractor.prompts.cache)) == (3, ["a", "c"])


def test_recomputation_gives_the_same_gradients(golden, tiny_config, build, recorded_batch):
    gradients = {}
    for recompute in (False, True):
        model, ran = build(tiny_config(gradient_checkpointing=recompute)), []
        block = model.backbone_interface.extractor.transformer.transformer_blocks[3]
        block.register_forward_pre_hook(lambda *_, ran=ran: ran.append(1))
        model.draws = replay(golden)
        sum(model(recorded_batch()).values()).backward()
        assert len(ran) == (2 if recompute else 1)
        gradients[recompute] = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(gradients[True], gradients[False])


def test_mixed_precision(backend, golden, tiny_config, build, recorded_batch, recorded_losses):
    """Under bfloat16 autocast the transformer computes in bfloat16, head and VAE in their own float32."""
    model, dtypes = build(tiny_config()), {}
    extractor = model.backbone_interface.extractor
    watched = {
        "transformer": extractor.transformer.transformer_blocks[0].attn1.to_q,
        "head": model.action_model.model.transformer_blocks[0].attn1.to_q,
        "vae": extractor.vae.encoder.conv_in,
        "text": extractor.text_encoder.model.language_model.layers[0].mlp,
    }
    for name, module in watched.items():
        module.register_forward_hook(lambda _m, _i, output, name=name: dtypes.update({name: output.dtype}))
    model.draws = replay(golden)
    with backend.autocast(torch.bfloat16):
        losses = model(recorded_batch())
    assert dtypes == {
        "transformer": torch.bfloat16,
        "head": torch.float32,
        "vae": torch.float32,
        "text": torch.float32,
    }
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    for loss, recorded in zip(losses.values(), recorded_losses, strict=True):
        assert loss.item() == pytest.approx(recorded, rel=0.02)
    sum(losses.values()).backward()


def test_weights_stored_in_bfloat16(golden, tiny_config, build, recorded_batch, recorded_losses):
    """As a sharded optimizer does it: trained weights bfloat16, frozen networks as they were, no autocast."""
    model = build(tiny_config())
    model.detach_frozen()
    model.bfloat16()
    model.draws = replay(golden)
    losses = model(recorded_batch())
    for loss, recorded in zip(losses.values(), recorded_losses, strict=True):
        assert loss.item() == pytest.approx(recorded, rel=0.03)
    sum(losses.values()).backward()
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_times_rounded_as_published_training_did(tiny_config, build):
    for dtype, expected in (("float32", 200 / 201), ("bfloat16", 0.99609375)):
        model, times = build(tiny_config(backbone={"time_dtype": dtype})), []
        embed = model.backbone_interface.extractor.transformer.time_embed
        embed.register_forward_hook(lambda _m, inputs, _o, times=times: times.append(inputs[1]))
        model.predict_action({"images": torch.rand(1, 1, 3, 32, 32), "lang": ["go"]})
        assert times[0].tolist() == pytest.approx([0.0001, expected], rel=1e-6)


def test_predictions_repeat_with_a_generator(tiny_config, build, recorded_batch):
    model, batch = build(tiny_config()), recorded_batch()
    first = model.predict_action(batch, torch.Generator().manual_seed(7))
    single = {**batch, "images": batch["images"][:, :1]}
    # Future frames change nothing: the model does not look at them.
    assert torch.equal(first, model.predict_action(single, torch.Generator().manual_seed(7)))
    assert not torch.equal(first, model.predict_action(batch, torch.Generator().manual_seed(8)))
    torch.manual_seed(3)
    unseeded = model.predict_action(single)
    torch.manual_seed(3)
    assert torch.equal(unseeded, model.predict_action(single))
    assert first.shape == (2, 8, 8)
    assert not first.is_inference()


def test_parameters_without_gradient_are_foretold(golden, tiny_config, build, recorded_batch):
    def without_gradient(model, batch):
        sum(model(batch).values()).backward()
        return {name for name, value in model.named_parameters() if value.requires_grad and value.grad is None}

    batch = recorded_batch()
    stateless = {key: value for key, value in batch.items() if key != "state"}
    model = build(tiny_config())
    assert without_gradient(model, batch) == set()
    assert not model.unused_parameters_possible
    model = build(tiny_config(), state_optional=True)
    assert all("state_encoder" in name for name in without_gradient(model, stateless))
    assert model.unused_parameters_possible
    assert not build(tiny_config(head={"state_dim": None}), state_optional=True).unused_parameters_possible
    assert build(tiny_config(), clip_frames=1).unused_parameters_possible
    assert not build(tiny_config(mode="action"), clip_frames=1).unused_parameters_possible


def test_clip_length():
    assert clip_frames(list(range(9)), 2) == 5
    assert clip_frames(list(range(17)), 2) == 9
    assert clip_frames([0], 1) == 1
    assert clip_frames(None, 2) is None


def test_text_encoder_may_stay_on_the_host(tiny_config, build):
    assert build(tiny_config()).frozen_on_host == ()
    model = build(tiny_config(backbone={"text_encoder_on_host": True}))
    assert set(model.frozen_on_host) <= set(model.frozen())
