"""The VAE's latents on disk: the same numbers, by the right VAE only, and no clip encoded twice."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from vla_dit4dit.config import ConfigError
from vla_train.tensor_store import TensorStore


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vla-backend" / "latents"


@pytest.fixture
def make(tiny_config, build):
    """A model in training mode, and a list that gets the number of clips at each run of the VAE."""

    def made(cache: bool = True, mode: str = "joint", **backbone):
        config = tiny_config(mode=mode, backbone={"latent_cache": cache, **backbone}, head={"dropout": 0.0})
        model, ran = build(config).train(), []
        vae, encode = model.backbone_interface.extractor.vae, model.backbone_interface.extractor.vae.encode
        vae.encode = lambda clip: ran.append(len(clip)) or encode(clip)
        return model, ran

    return made


def losses(model, batch):
    torch.manual_seed(0)
    return torch.stack(list(model(batch).values())).detach()


@pytest.mark.parametrize("mode", ["joint", "action", "video"])
def test_equal_losses_and_no_clip_twice(make, recorded_batch, own_cache, mode):
    batch = recorded_batch()
    plain, _ = make(False, mode)
    expected = losses(plain, batch)
    model, ran = make(True, mode)
    first = losses(model, batch)
    torch.testing.assert_close(first, expected, atol=1e-6, rtol=1e-6)
    assert ran == [1, 1]
    assert len(list(own_cache.glob("*.safetensors"))) == 2
    again, ran = make(True, mode)
    assert torch.equal(losses(again, batch), first)
    assert not ran


def test_results_do_not_depend_on_the_rest_of_the_batch(make, recorded_batch):
    batch = recorded_batch()
    model, ran = make()
    latents = model.backbone_interface.extractor.latent_cache
    clips = batch["images"].transpose(1, 2) * 2 - 1
    one = latents.posterior(clips[:1])
    both = latents.posterior(clips)
    assert torch.equal(one.mean[0], both.mean[0])
    assert torch.equal(one.std[0], both.std[0])
    assert ran == [1, 1]


@pytest.mark.parametrize("change", ["pixel", "weights", "dtype"])
def test_another_input_finds_nothing(make, recorded_batch, change):
    batch = recorded_batch()
    losses(make()[0], batch)
    model, ran = make(**({"frozen_dtype": "bfloat16"} if change == "dtype" else {}))
    if change == "pixel":
        batch["images"] = batch["images"].clone()
        batch["images"][0, 1, 0, 0, 0] += 1 / 255
    if change == "weights":
        vae = model.backbone_interface.extractor.vae
        vae.load_state_dict({key: value * 1.01 for key, value in vae.state_dict().items()})
    losses(model, batch)
    assert len(ran) == (1 if change == "pixel" else 2)


def test_acting_leaves_the_cache_alone(make, recorded_batch, own_cache):
    model, ran = make()
    model.eval().predict_action(recorded_batch())
    assert ran == [2]
    assert not own_cache.exists()


def test_a_trained_vae_is_refused(make, recorded_batch):
    model, _ = make()
    model.backbone_interface.extractor.vae.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"latent_cache is true, but the VAE is trained"):
        losses(model, recorded_batch())


def test_augmented_frames_are_refused(make, recorded_batch):
    """The second time a sample comes with other pixels it is named."""
    model, _ = make()
    batch = {**recorded_batch(), "sample_ids": ["set/0/3", "set/0/9"]}
    losses(model, batch)
    losses(model, batch)
    batch["images"] = batch["images"].clone()
    batch["images"][1] *= 0.9
    with pytest.raises(ConfigError, match=r"(?s)other frames every time.*set/0/9 was another.*latent_cache=false"):
        losses(model, batch)


def _write(folder, start) -> None:
    store = TensorStore(folder, 10**9, "clip's latents")
    path = store.file("same")
    start.wait()
    for _ in range(50):
        store.save(path, torch.arange(5_000.0))
        found = store.load(path)
        assert found is not None
        assert torch.equal(found, torch.arange(5_000.0))


def test_processes_write_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    workers = [context.Process(target=_write, args=(tmp_path / "shared", start)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [path.suffix for path in (tmp_path / "shared").iterdir()] == [".safetensors"]


def test_the_folder_is_looked_at_seldom(tmp_path, monkeypatch):
    store, looks = TensorStore(tmp_path, 1_000_000, "clip's latents"), []
    listing = type(tmp_path).glob
    monkeypatch.setattr(type(tmp_path), "glob", lambda self, pattern: looks.append(1) or listing(self, pattern))
    for number in range(600):
        store.save(store.file(number), torch.zeros(1000))  # 4 kB each, 2.4 MB in all
    assert len(looks) < 600 / 8
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 900_000 < size < 1_100_000
