"""The video backbone against recorded upstream runs, and against the libraries' own pipeline code."""

from __future__ import annotations

import types

import pytest
import torch
from diffusers import CosmosTransformer3DModel
from diffusers.models.transformers import transformer_cosmos
from torch.nn import functional

from vla_dit4dit.attention import group_by_frame
from vla_dit4dit.config import FlowMatchingConfig
from vla_dit4dit.features import project_context, project_text, run_transformer
from vla_train.nn import Draws, ReplayDraws

CASES = ("joint_logitnormal", "infer_single_frame", "joint_pixel_l1_2steps", "joint_latent_mse_3steps")


@pytest.mark.parametrize("case", CASES)
def test_features_and_loss(golden, tiny_config, build, case):
    found = golden(f"backbone_{case}")
    overrides = {key.rsplit(".", 1)[1]: value for key, value in found.facts["overrides"].items()}
    model = build(tiny_config(backbone=overrides))
    prompts, draws = found.facts["prompts"], ReplayDraws.from_tensors(found.tensors)
    extractor = model.backbone_interface.extractor

    output = model.backbone_interface(found["in.images"], prompts, draws=draws, features=True, video_loss=True)

    assert draws.remaining == 0
    assert not output.features.requires_grad
    torch.testing.assert_close(output.features, found["out.hidden"], rtol=1e-4, atol=1e-5)
    ids = torch.cat([extractor.prompts.token_ids(prompt) for prompt in prompts])
    assert torch.equal(ids, found["mid.input_ids"])
    embeddings = torch.stack([extractor.prompts.cache[prompt] for prompt in prompts])
    torch.testing.assert_close(embeddings, found["mid.prompt_embeds"], rtol=1e-4, atol=1e-5)
    if found.get("out.future_video_loss") is None:
        assert output.future_video_loss is None
        return
    torch.testing.assert_close(output.future_video_loss.reshape(1), found["out.future_video_loss"], rtol=1e-5, atol=0)
    output.future_video_loss.backward()
    norms = {key: value for key, value in found.tensors.items() if key.startswith("gradnorm.transformer.")}
    assert bool(norms) == (case == "joint_logitnormal")
    for name, parameter in extractor.transformer.named_parameters():
        norm = norms.get(f"gradnorm.transformer.{name}")
        if norm is not None:
            assert parameter.grad.norm().item() == pytest.approx(norm.item(), rel=1e-4, abs=1e-7), name
    # The sampler's losses train the same networks.
    assert extractor.transformer.patch_embed.proj.weight.grad.norm() > 0
    assert all(p.grad is None for network in (extractor.vae, extractor.text_encoder) for p in network.parameters())


def library_forward(monkeypatch, transformer, latents, mask, time, embeddings):
    """The library's own forward; its one torchvision function is replaced by the same resize of torch."""
    resize = lambda image, size, interpolation: functional.interpolate(image, size=size, mode="nearest")  # noqa: E731
    shim = types.SimpleNamespace(
        functional=types.SimpleNamespace(resize=resize), InterpolationMode=types.SimpleNamespace(NEAREST="nearest")
    )
    monkeypatch.setattr(transformer_cosmos, "transforms", shim, raising=False)
    padding = latents.new_zeros(1, 1, latents.shape[-2] * 8, latents.shape[-1] * 8)
    return transformer(
        hidden_states=latents,
        condition_mask=mask,
        timestep=time,
        encoder_hidden_states=embeddings,
        padding_mask=padding,
        return_dict=False,
    )[0]


@pytest.mark.parametrize("positions", [None, "learnable"])
@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_walk_equals_the_library(monkeypatch, positions, projection, padding, checkpointing):
    torch.manual_seed(0)
    transformer = CosmosTransformer3DModel(
        in_channels=5,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=3,
        text_embed_dim=12,
        adaln_lora_dim=8,
        max_size=(8, 16, 16),
        extra_pos_embed_type=positions,
        concat_padding_mask=padding,
        use_crossattn_projection=projection,
        crossattn_proj_in_channels=20,
        encoder_hidden_states_channels=12,
    ).eval()
    for parameter in transformer.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    latents, time = torch.randn(2, 4, 3, 4, 6), torch.rand(2, 1, 3, 1, 1)
    mask = torch.zeros(2, 1, 3, 4, 6)
    mask[:, :, 0] = 1
    embeddings = torch.randn(2, 7, 20 if projection else 12)
    blocks = []
    hook = transformer.transformer_blocks[1].register_forward_hook(
        lambda _module, _inputs, output: blocks.append(output)
    )
    expected = library_forward(monkeypatch, transformer, latents, mask, time, embeddings)
    hook.remove()
    group_by_frame(transformer)
    text = project_text(transformer, embeddings)
    context = project_context(transformer, text, checkpointing=checkpointing)
    output = run_transformer(transformer, latents, mask, time, context, feature_block=1, checkpointing=checkpointing)
    with torch.no_grad():
        context = project_context(transformer, text, 2)
        early = run_transformer(transformer, latents, mask, time, context, feature_block=1, velocity=False)

    torch.testing.assert_close(output.velocity, expected)
    torch.testing.assert_close(output.features, blocks[0])
    torch.testing.assert_close(early.features, blocks[0])
    assert early.velocity is None
    assert not output.features.requires_grad
    parameters = dict(transformer.named_parameters())
    wanted = torch.autograd.grad(expected.square().mean(), parameters.values())
    gradients = torch.autograd.grad(output.velocity.square().mean(), parameters.values())
    for name, value, gradient in zip(parameters, wanted, gradients, strict=True):
        torch.testing.assert_close(gradient, value, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
    # The library's own forward still works on the prepared transformer.
    torch.testing.assert_close(library_forward(monkeypatch, transformer, latents, mask, time, embeddings), expected)


def test_nothing_runs_after_the_feature_block(golden, tiny_config, build):
    model = build(tiny_config())
    found, ran = golden("backbone_infer_single_frame"), []
    transformer = model.backbone_interface.extractor.transformer
    for index, block in enumerate(transformer.transformer_blocks):
        block.register_forward_hook(lambda *_, index=index: ran.append(index))
    model.backbone_interface.extractor.text_encoder.lm_head.register_forward_hook(lambda *_: ran.append("lm_head"))
    draws = ReplayDraws.from_tensors(found.tensors)
    model.backbone_interface(found["in.images"], found.facts["prompts"], draws=draws, features=True, video_loss=True)
    assert ran == [0, 1, 2]


def reference(monkeypatch, model, images, prompts, draws):
    """Features and flow-matching loss written as upstream does it: padded condition clip, two VAE passes, full runs."""
    extractor = model.backbone_interface.extractor
    vae, transformer, config = extractor.vae, extractor.transformer, model.config.backbone
    mean, std = (
        torch.tensor(values).view(1, -1, 1, 1, 1) for values in (vae.config.latents_mean, vae.config.latents_std)
    )
    batch, frames, _, height, width = images.shape
    video = images.transpose(1, 2) * 2 - 1
    shape = (batch, 16, (frames - 1) // 4 + 1, height // 8, width // 8)
    condition = torch.cat([video[:, :, :1], torch.zeros_like(video[:, :, 1:])], dim=2)
    samples = []
    for clip in condition:
        posterior = vae.encode(clip[None]).latent_dist
        samples.append(posterior.mean + posterior.std * draws.randn((1, *shape[1:]), device="cpu"))
    condition = (torch.cat(samples) - mean) / std
    start = draws.randn(shape, device="cpu")
    mask = torch.zeros(batch, 1, *shape[2:])
    mask[:, :, 0] = 1
    embeddings = torch.cat([extractor.prompts.encode(extractor.prompts.token_ids(prompt)) for prompt in prompts])

    def run(latents, later):
        time = later.view(-1, 1, 1, 1, 1).expand(batch, 1, shape[2], 1, 1).clone()
        time[:, :, 0] = config.conditional_frame_timestep
        mixed = mask * condition + (1 - mask) * latents
        return library_forward(monkeypatch, transformer, mixed, mask, time, embeddings)

    kept = []
    block = transformer.transformer_blocks[config.extract_layer]
    hook = block.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    run(start, torch.full((batch,), 200 / 201))
    hook.remove()
    clean = ((vae.encode(video).latent_dist.mean - mean) / std)[:, :, 1:]
    time = draws.rand((batch,), device="cpu")
    noise, filler = draws.randn_like(clean), draws.randn_like(start)
    level = time.view(-1, 1, 1, 1, 1)
    filler[:, :, 1:] = (1 - level) * clean + level * noise
    return kept[0], functional.mse_loss(run(filler, time)[:, :, 1:], noise - clean)


def test_three_latent_frames_and_uniform_time(monkeypatch, tiny_config, build):
    """Nine frames, three samples, two of them with the same instruction, uniform time without high noise."""
    flow = FlowMatchingConfig(time_distribution="uniform", high_sigma_ratio=None, high_sigma_min=None)
    model = build(tiny_config(backbone={"flow_matching": flow}), clip_frames=9)
    torch.manual_seed(3)
    images, prompts = torch.rand(3, 9, 3, 32, 48), ["push the button", "open the drawer", "push the button"]
    generator = torch.Generator()
    with torch.no_grad():
        features, loss = reference(monkeypatch, model, images, prompts, Draws(generator.manual_seed(5)))
        draws = Draws(generator.manual_seed(5))
        output = model.backbone_interface(images, prompts, draws=draws, features=True, video_loss=True)
    assert output.features.shape == (3, 3 * 2 * 3, 48)
    torch.testing.assert_close(output.features, features, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(output.future_video_loss, loss, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("alias", "name"), [("rf", "flow_matching"), ("mse", "pixel_mse")])
def test_loss_aliases(golden, tiny_config, build, alias, name):
    found = golden("backbone_joint_logitnormal")
    losses = []
    for kind in (alias, name):
        model = build(tiny_config(backbone={"future_loss_type": kind, "future_num_inference_steps": 2}))
        draws = ReplayDraws.from_tensors(found.tensors)
        output = model.backbone_interface(
            found["in.images"], found.facts["prompts"], draws=draws, features=True, video_loss=True
        )
        losses.append(output.future_video_loss)
        torch.testing.assert_close(output.features, found["out.hidden"], rtol=1e-4, atol=1e-5)
    assert torch.equal(*losses)


def test_right_ranges_by_default(golden, tiny_config, build):
    """Upstream's range of `latent_mse` is a switch; without it the target is that of flow matching."""
    found = golden("backbone_joint_latent_mse_3steps")
    losses = {}
    for unit_range in (False, True):
        overrides = {
            "future_loss_type": "latent_mse",
            "future_num_inference_steps": 3,
            "latent_mse_unit_range": unit_range,
        }
        model = build(tiny_config(backbone=overrides))
        draws = ReplayDraws.from_tensors(found.tensors)
        losses[unit_range] = model.backbone_interface(
            found["in.images"], found.facts["prompts"], draws=draws, features=False, video_loss=True
        ).future_video_loss.item()
    assert losses[True] == pytest.approx(found["out.future_video_loss"].item(), rel=1e-5)
    # Small on random weights, but a hundred times the tolerance above would still see it.
    assert abs(losses[False] - losses[True]) > 1e-4


def test_uint8_images(golden, tiny_config, build):
    model = build(tiny_config())
    pixels = torch.randint(0, 256, (1, 1, 3, 32, 32), dtype=torch.uint8)
    results = [
        model.backbone_interface(
            images, ["go"], draws=Draws(torch.Generator().manual_seed(0)), features=True, video_loss=False
        ).features
        for images in (pixels, pixels.float() / 255)
    ]
    assert torch.equal(*results)


def test_raw_views_are_resized_by_the_model(tiny_config, build, recorded_batch):
    """Frames as decoded give the losses of frames resized before."""
    model, batch = build(tiny_config(), image_size=(32, 32)), recorded_batch()
    views = {name: torch.randint(0, 256, (2, 5, 3, 24, 40), dtype=torch.uint8) for name in ("primary_0", "wrist_0")}
    resized = [functional.interpolate(view.flatten(0, 1) / 255, (32, 32), mode="bilinear") for view in views.values()]
    images = torch.cat(resized, dim=-1).unflatten(0, (2, 5))
    losses = []
    for given in ({"images": images}, {"views": views}):
        torch.manual_seed(0)
        losses.append(model({**{key: value for key, value in batch.items() if key != "images"}, **given}))
    assert losses[0] == losses[1]
    actions = [
        model.predict_action({**batch, **given}, torch.Generator().manual_seed(0))
        for given in ({"images": images}, {"views": views})
    ]
    assert torch.equal(*actions)
