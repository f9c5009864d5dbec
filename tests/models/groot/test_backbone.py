"""The backbone against recordings of the published implementation."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from vla_groot.architecture import Architecture
from vla_groot.backbone import Backbone
from vla_groot.backbone_files import BackboneFiles
from vla_groot.errors import BackboneError, BatchError
from vla_groot.positions import mrope_positions

from .conftest import DATA, near, part

CHECKPOINT = DATA / "checkpoint"


def backbone(**changes) -> Backbone:
    config = Architecture.read(CHECKPOINT).updated(changes)
    files = BackboneFiles.of_checkpoint(config.model_name, config.model_revision, CHECKPOINT)
    model = Backbone(config, files.config())
    if not changes:
        model.load_state_dict(part(load_file(CHECKPOINT / "model.safetensors"), "backbone."))
    return model


@pytest.fixture
def recorded(tensors):
    values = tensors("backbone_batch")
    values["in.pixel_values"] = tensors("processor_batch")["batch.pixel_values"]
    return values


def test_features(recorded):
    model, seen = backbone(), {}
    model.qwen.visual.merger.register_forward_hook(lambda _, __, output: seen.update(visual=output))
    model.qwen.language_model.norm.register_forward_hook(lambda _, __, output: seen.update(norm=output))
    found = model(**part(recorded, "in."))
    near(found.hidden, recorded["out.backbone_features"])
    near(seen["visual"], recorded["mid.visual"])
    near(seen["norm"], recorded["mid.after_final_norm"])
    assert torch.equal(found.attention_mask, recorded["out.backbone_attention_mask"])
    assert torch.equal(found.image_mask, recorded["out.image_mask"])


def test_a_sample_alone_has_the_features_it_has_in_the_batch(recorded):
    inputs = part(recorded, "in.")
    kept, first = inputs["attention_mask"][1].bool(), int(inputs["image_grid_thw"][:2].prod(-1).sum())
    found = backbone()(
        inputs["input_ids"][1:, kept],
        inputs["attention_mask"][1:, kept],
        inputs["pixel_values"][first:],
        inputs["image_grid_thw"][2:],
    )
    near(found.hidden[0], recorded["out.backbone_features"][1, kept])


def test_patches_are_projected_as_published_in_float32(recorded):
    projection = backbone().qwen.visual.patch_embed.proj
    patches = recorded["in.pixel_values"].view(-1, 3, 2, 16, 16)
    ordered = patches.contiguous(memory_format=torch.channels_last_3d)
    wanted = torch.nn.functional.conv3d(ordered, projection.weight, projection.bias, projection.stride).detach()
    assert torch.equal(projection(patches), wanted)
    low = projection.bfloat16()(patches.bfloat16()).float()
    near(low, wanted.flatten(1), 0.02 * wanted.abs().max().item())


def test_positions(recorded):
    inputs = part(recorded, "in.")
    image_mask = inputs["input_ids"] == 262
    found = mrope_positions(inputs["attention_mask"], image_mask, inputs["image_grid_thw"], 2)
    assert torch.equal(found, recorded["mid.position_ids"])


def test_text_alone(recorded):
    inputs = part(recorded, "in.")
    ids = inputs["input_ids"].where(inputs["input_ids"] != 262, 65)
    found = backbone()(ids, inputs["attention_mask"])
    assert found.hidden.shape == (2, 64, 64)
    assert not found.image_mask.any()


def test_frozen_backbone_builds_no_graph(recorded):
    model, inputs = backbone(), part(recorded, "in.")
    model.tune(llm=False, visual=False, top_llm_layers=0)
    assert not model(**inputs).hidden.requires_grad
    model.tune(llm=False, visual=False, top_llm_layers=1)
    assert model(**inputs).hidden.requires_grad


def test_trainable_weights(facts):
    model = backbone()
    for flags, wanted in facts("keys")["trainable_backbone"].items():
        values = {key: int(value) for key, value in (flag.split("=") for flag in flags.split(","))}
        model.tune(
            llm=bool(values["tune_llm"]),
            visual=bool(values["tune_visual"]),
            top_llm_layers=values["tune_top_llm_layers"],
        )
        assert [name for name, p in model.named_parameters() if p.requires_grad] == wanted, flags


def test_what_does_not_fit():
    with pytest.raises(BackboneError, match="has 4 language layers"):
        backbone(select_layer=5)
    with pytest.raises(BackboneError, match="text width is 64"):
        backbone(backbone_embedding_dim=32)


def test_images_that_do_not_match_the_text(recorded):
    inputs = part(recorded, "in.")
    inputs["image_grid_thw"] = inputs["image_grid_thw"][:2]
    with pytest.raises(BatchError, match="image_grid_thw says 8"):
        backbone()(**inputs)
    inputs = part(recorded, "in.")
    inputs["pixel_values"] = inputs["pixel_values"][:-1]
    with pytest.raises(BatchError, match="55 patches"):
        backbone()(**inputs)
