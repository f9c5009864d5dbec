"""The random Cosmos-Predict2.5 pipeline of the demonstration."""

from __future__ import annotations

import json

import pytest
import torch
from diffusers import Cosmos2_5_PredictBasePipeline

from vla_dit4dit import tiny

SPEC = tiny.TinySpec(width=48, heads=3, layers=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "pipeline"
    tiny.main([str(path), "--width", "48", "--heads", "3", "--layers", "2"])
    return path


@pytest.fixture(scope="module")
def pipeline(folder):
    class NoChecker:
        pass

    return Cosmos2_5_PredictBasePipeline.from_pretrained(folder, safety_checker=NoChecker(), local_files_only=True)


def test_loads_as_the_published_classes(pipeline):
    names = {name: type(getattr(pipeline, name)).__name__ for name in ("transformer", "vae", "text_encoder")}
    assert names == {
        "transformer": "CosmosTransformer3DModel",
        "vae": "AutoencoderKLWan",
        "text_encoder": "Qwen2_5_VLForConditionalGeneration",
    }
    assert pipeline.transformer.config.in_channels == 17
    assert len(pipeline.transformer.transformer_blocks) == 2


def test_scheduler_has_the_published_noise_level(pipeline):
    pipeline.scheduler.set_timesteps(1)
    assert pipeline.scheduler.sigmas[0].item() == pytest.approx(200 / 201)


def test_tokenizer_reads_any_text_and_pads_right(pipeline):
    chat = [{"role": "user", "content": [{"type": "text", "text": "drücke den roten Knopf"}]}]
    encoded = pipeline.tokenizer.apply_chat_template(
        chat, tokenize=True, max_length=64, truncation=True, padding="max_length", return_dict=True
    )
    ids = encoded["input_ids"]
    text = pipeline.tokenizer.decode(ids, skip_special_tokens=True)
    assert text == "user\ndrücke den roten Knopf\n"
    assert len(ids) == 64
    assert (
        ids[-1] == pipeline.tokenizer.pad_token_id != ids[0] == pipeline.tokenizer.convert_tokens_to_ids("<|im_start|>")
    )


def test_prompts_give_different_embeddings_of_the_transformers_width(pipeline):
    with torch.no_grad():
        embeds = pipeline._get_prompt_embeds(["open the drawer", "press the button"], 64, device="cpu")
    assert embeds.shape == (2, 64, pipeline.transformer.config.crossattn_proj_in_channels)
    assert (embeds[0] - embeds[1]).abs().mean() > 0.05


def test_latents_have_unit_scale_and_keep_small_differences(pipeline):
    generator = torch.Generator().manual_seed(5)
    coarse = torch.rand(8, 3, 6, 6, generator=generator) * 2 - 1
    images = torch.nn.functional.interpolate(coarse, size=(64, 64), mode="bilinear")[:, :, None]
    moved = images.roll(2, dims=-1)
    with torch.no_grad():
        latents = pipeline.vae.encode(images).latent_dist
        shifted = pipeline.vae.encode(moved).latent_dist.mean
    assert latents.mean.shape == (8, 16, 1, 8, 8)
    assert 0.3 < latents.mean.std().item() < 3.0
    assert latents.std.max() < 0.01
    assert (latents.mean - shifted).abs().mean() > 0.05


def test_the_model_takes_it(folder):
    from vla_backend import activate
    from vla_dit4dit.config import BackboneConfig
    from vla_dit4dit.cosmos import load_parts

    backend = activate("cpu")
    backend.load_stack()
    parts = load_parts(BackboneConfig(path=str(folder), extract_layer=1), backend)
    assert len(parts.transformer.transformer_blocks) == 2


def test_same_seed_same_weights_whatever_was_drawn_before(folder, pipeline):
    torch.manual_seed(123)
    before = torch.get_rng_state()
    again = tiny.build(SPEC)
    assert torch.equal(torch.get_rng_state(), before)
    for part in ("transformer", "vae", "text_encoder"):
        stored, built = (getattr(p, part).state_dict() for p in (pipeline, again))
        assert stored.keys() == built.keys()
        assert all(torch.equal(built[name], value) for name, value in stored.items()), part
    other = tiny.build(tiny.TinySpec(width=48, heads=3, layers=2, seed=1))
    assert not torch.equal(other.transformer.proj_out.weight, again.transformer.proj_out.weight)


def test_impossible_sizes_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        tiny.main([str(tmp_path / "x"), "--width", "50"])
    assert "multiple of 8" in capsys.readouterr().err
    with pytest.raises(ValueError, match="multiple of 32"):
        tiny.TinySpec(text_width=20)


def test_no_safety_checker_is_stored(folder):
    assert json.loads((folder / "model_index.json").read_text())["safety_checker"] == [None, None]
