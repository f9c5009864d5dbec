"""The backbone's features on disk: the same losses, by the right backbone only, and no sample seen twice."""

from __future__ import annotations

import pytest
import torch

from vla_groot.checkpoint import load_model
from vla_groot.config import GrootConfig
from vla_groot.errors import ConfigError
from vla_groot.feature_cache import FeatureCache
from vla_train.config import load_config

from . import jobs
from .conftest import DATA
from .test_model import inputs

CACHED = ("model.feature_cache=true", "model.augment_images=false")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vla-backend" / "features"


@pytest.fixture
def make(backend):
    """A model in training mode without dropout, and a list that gets the batch size of each run of the backbone."""

    def made(cache: bool = True, padding_seen: bool = False):
        frozen = {"tune_llm": False, "tune_visual": False, "tune_top_llm_layers": 0}
        changes = {**frozen, "mask_feature_padding": not padding_seen}
        model, ran = load_model(DATA / "checkpoint", backend, changes=changes), []
        if cache:
            model.feature_cache = FeatureCache(model.backbone, "cpu", 10**9, padding_seen=padding_seen)
        model.train().action_head.eval()
        model.backbone.register_forward_pre_hook(lambda _, args: ran.append(len(args[0])))
        return model, ran

    return made


@pytest.fixture
def batch(tensors):
    """Two samples of different length, and their names."""
    found = inputs(tensors, "full_loss")[1]
    assert found["attention_mask"].min() == 0
    return {**found, "sample_ids": ["set/0/3", "set/0/9"]}


def loss(model, batch):
    torch.manual_seed(0)
    return model(batch)["action_loss"].detach()


def without_padding(batch):
    """The first, longer sample with its two images, twice."""
    twice = {key: value[[0, 0]] for key, value in batch.items() if isinstance(value, torch.Tensor)}
    twice["image_grid_thw"] = batch["image_grid_thw"][:2].repeat(2, 1)
    twice["pixel_values"] = batch["pixel_values"][:32].repeat(2, 1)
    return twice


def test_equal_losses_and_no_sample_twice(make, batch, own_cache):
    expected = loss(make(False)[0], batch)
    model, ran = make()
    first = loss(model, batch)
    torch.testing.assert_close(first, expected, atol=1e-6, rtol=1e-6)
    assert ran == [1, 1]
    assert len(list(own_cache.glob("*.safetensors"))) == 2
    again, ran = make()
    assert torch.equal(loss(again, batch), first)
    assert not ran


def test_features_of_every_token_are_the_backbones(make, batch):
    model, _ = make()
    found, wanted = model.feature_cache.features(batch), make(False)[0].features(batch)
    real = wanted.attention_mask
    torch.testing.assert_close(found.hidden[real], wanted.hidden[real], atol=1e-5, rtol=1e-5)
    assert not found.hidden[~real].any()
    for name in ("attention_mask", "image_mask"):
        assert torch.equal(getattr(found, name), getattr(wanted, name))
    for mine, theirs in zip(found.tokens(), wanted.tokens(), strict=True):
        assert torch.equal(mine.rows, theirs.rows)


def test_gradients_reach_the_head(make, batch):
    model, _ = make()
    loss_with_graph = model(batch)["action_loss"]
    loss_with_graph.backward()
    assert model.action_head.vlln.weight.grad.abs().max() > 0


@pytest.mark.parametrize("change", ["pixel", "text", "weights", "dtype"])
def test_another_input_finds_nothing(make, batch, change):
    loss(make()[0], batch)
    model, ran = make()
    batch.pop("sample_ids")
    if change == "pixel":
        batch["pixel_values"] = batch["pixel_values"].clone()
        batch["pixel_values"][0, 0] += 1 / 127
    if change == "text":
        batch["input_ids"] = batch["input_ids"].clone()
        batch["input_ids"][0, -1] += 1
    if change == "weights":
        state = model.backbone.state_dict()
        model.backbone.load_state_dict({key: value * 1.01 for key, value in state.items()})
    if change == "dtype":
        model.backbone.to(torch.bfloat16)
    loss(model, batch)
    assert len(ran) == (1 if change in ("pixel", "text") else 2)


def test_autocast_has_features_of_its_own(make, batch, backend):
    loss(make()[0], batch)
    model, ran = make()
    with backend.autocast(torch.bfloat16):
        loss(model, batch)
    assert len(ran) == 2


def test_acting_and_evaluating_leave_it_alone(make, batch, own_cache):
    model, ran = make()
    model.eval().predict_action(batch)
    model(batch)
    assert ran == [2, 2]
    assert not own_cache.exists()


def test_padding_that_is_seen_is_refused(make, batch):
    """Published checkpoints look at it; features of padding depend on the rest of the batch."""
    model, _ = make(padding_seen=True)
    with pytest.raises(ConfigError, match=r"(?s)different length.*mask_feature_padding=true"):
        loss(model, batch)
    loss(model, without_padding(batch))


def test_a_trained_backbone_is_refused(make, batch):
    model, _ = make()
    model.backbone.qwen.language_model.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"feature_cache is true, but the backbone is trained"):
        loss(model, batch)


def test_augmented_images_are_refused(make, batch):
    model, _ = make()
    loss(model, batch)
    batch["pixel_values"] = batch["pixel_values"] * 0.9
    with pytest.raises(ConfigError, match=r"(?s)other frames every time.*set/0/3 was another before"):
        loss(model, batch)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "training images are augmented at random"),
        ({"augment_images": False, "tune_llm": True}, r"model\.tune_llm trains the backbone"),
        ({"augment_images": False, "tune_top_llm_layers": 2}, r"model\.tune_top_llm_layers trains the backbone"),
        ({"augment_images": False, "feature_cache_gb": 0}, r"feature_cache_gb is 0"),
    ],
)
def test_configurations_that_cannot_work(settings, message):
    with pytest.raises(ConfigError, match=message):
        GrootConfig(base_model="any", feature_cache=True, **settings).validate()


def test_training_images_as_for_evaluation(tmp_path):
    """Without augmentation a training sample is what evaluation makes of it, and is named by its content."""
    dataset = _dataset(tmp_path, *CACHED)
    number, episode, step = dataset._place(0)
    plain, trained = dataset.sample(number, episode, step), dataset[0]
    assert torch.equal(plain["pixel_values"], trained["pixel_values"])
    assert plain["content_id"] == trained["content_id"] != dataset[1]["content_id"]
    augmented = _dataset(tmp_path)[0]
    assert not torch.equal(augmented["pixel_values"], trained["pixel_values"])
    assert "content_id" not in augmented


def _dataset(folder, *settings):
    from vla_backend import activate
    from vla_groot.data import build_dataset

    made = [*jobs.settings_of(folder), *settings]
    return build_dataset(load_config([], made, "groot")[0], activate("cpu").video_ctx)


def test_a_run_is_the_same_and_a_second_one_needs_no_backbone(tmp_path, monkeypatch, own_cache):
    """4 steps of the engine, its loader and its placement of the frozen backbone included."""
    from vla_groot.backbone import Backbone

    plain = _run(tmp_path / "plain", "model.augment_images=false")
    cached = _run(tmp_path / "cached", *CACHED)
    assert [entry["loss"] for entry in cached] == pytest.approx([entry["loss"] for entry in plain], abs=1e-6)
    kept = len(list(own_cache.glob("*.safetensors")))
    assert kept

    def unused(*_: object, **__: object) -> None:
        raise AssertionError("the backbone was run")

    monkeypatch.setattr(Backbone, "forward", unused)
    again = _run(tmp_path / "again", *CACHED)
    assert [entry["loss"] for entry in again] == [entry["loss"] for entry in cached]
    assert len(list(own_cache.glob("*.safetensors"))) == kept


def _run(folder, *settings):
    hidden = "model.architecture.mask_feature_padding=true"
    jobs.train(folder, 0, [*settings, *jobs.STILL, hidden])
    return [entry for entry in jobs.records(folder) if "loss" in entry]
