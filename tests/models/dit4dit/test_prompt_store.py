"""Prompt embeddings on disk: found again, by the right encoder only, whatever happens to the files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
import torch

from vla_dit4dit.late_encoder import LateTextEncoder
from vla_dit4dit.prompt_store import PromptStore, fingerprint

DATA = Path(__file__).parents[2] / "data" / "dit4dit"


@pytest.fixture
def embedder(tmp_path, tiny_config, build):
    """Makes (embedder, list that gets an entry per run of the encoder)."""

    def make(**settings):
        model, ran = build(tiny_config(backbone={"prompt_disk_cache": str(tmp_path / "prompts"), **settings})), []
        prompts = model.backbone_interface.extractor.prompts
        prompts.text_encoder.model.language_model.register_forward_hook(lambda *_: ran.append(1))
        return prompts, ran

    return make


def files(tmp_path):
    return sorted((tmp_path / "prompts").glob("*.safetensors"))


def embed(prompts, *texts):
    return prompts.unique(texts, torch.device("cpu"))[0]


def test_another_process_runs_no_encoder(tmp_path, embedder):
    prompts, ran = embedder()
    expected = embed(prompts, "push the button", "open the drawer")
    assert (len(ran), len(files(tmp_path))) == (2, 2)
    again, ran = embedder()
    assert torch.equal(embed(again, "open the drawer", "push the button"), expected.flip(0))
    assert not ran


def test_an_encoder_that_nobody_asks_is_not_loaded(tmp_path, tiny_config, build):
    config = tiny_config(backbone={"prompt_disk_cache": str(tmp_path / "prompts")})
    first = build(config)
    expected = embed(first.backbone_interface.extractor.prompts, "push the button")
    model = build(config)
    encoder = model.backbone_interface.extractor.text_encoder
    assert isinstance(encoder, LateTextEncoder)
    model.detach_frozen()
    encoder.requires_grad_(False).eval().to("cpu")
    prompts = model.backbone_interface.extractor.prompts
    assert torch.equal(embed(prompts, "push the button"), expected)
    assert not encoder.loaded
    # A new prompt loads it, and so does whoever wants the weights.
    assert torch.equal(
        embed(prompts, "open the drawer"), embed(first.backbone_interface.extractor.prompts, "open the drawer")
    )
    assert encoder.loaded
    exported, whole = build(config).full_state_dict(), first.full_state_dict()
    assert list(exported) == list(whole)
    assert all(torch.equal(exported[name], whole[name]) for name in whole)


def test_weights_that_are_loaded_reach_a_late_encoder(tmp_path, tiny_config, build):
    config = tiny_config(backbone={"prompt_disk_cache": str(tmp_path / "prompts")})
    first = build(config)
    before = embed(first.backbone_interface.extractor.prompts, "go")
    weights = {key: value * 1.01 if "text_encoder" in key else value for key, value in first.full_state_dict().items()}
    model = build(config)
    model.load_state_dict(weights)
    prompts = model.backbone_interface.extractor.prompts
    assert not torch.equal(embed(prompts, "go"), before)
    # And the next run finds the files of the pipeline as they are.
    again = build(config).backbone_interface.extractor
    assert torch.equal(embed(again.prompts, "go"), before)
    assert not again.text_encoder.loaded


@pytest.mark.parametrize("change", ["file", "dtype"])
def test_another_encoder_is_loaded_at_once(tmp_path, tiny_config, build, change):
    folder = tmp_path / "pipeline"
    shutil.copytree(DATA / "tiny_pipe", folder)
    settings = {"path": str(folder), "prompt_disk_cache": str(tmp_path / "prompts")}
    embed(build(tiny_config(backbone=settings)).backbone_interface.extractor.prompts, "go")
    if change == "file":
        os.utime(next((folder / "text_encoder").glob("*.safetensors")), (1, 1))
    else:
        settings["frozen_dtype"] = "bfloat16"
    encoder = build(tiny_config(backbone=settings)).backbone_interface.extractor.text_encoder
    assert not isinstance(encoder, LateTextEncoder)


@pytest.mark.parametrize("change", ["weights", "loaded weights", "length", "dtype", "text"])
def test_another_setting_finds_nothing(tmp_path, embedder, change):
    embed(embedder()[0], "push the button")
    settings = {"length": {"max_sequence_length": 191}, "dtype": {"frozen_dtype": "bfloat16"}}.get(change, {})
    prompts, ran = embedder(**settings)
    encoder = prompts.text_encoder
    if change == "weights":
        with torch.no_grad():
            encoder.model.language_model.layers[0].mlp.up_proj.weight[3, 5] += 1e-3
    if change == "loaded weights":
        embed(prompts, "push the button")
        assert not ran
        state = {key: value * 1.01 for key, value in encoder.state_dict().items()}
        encoder.load_state_dict(state)
    embed(prompts, "push the  button" if change == "text" else "push the button")
    assert (len(ran), len(files(tmp_path))) == (1, 2)


def test_trained_encoder_is_never_cached(tmp_path, embedder):
    prompts, ran = embedder(train_text_encoder=True)
    embed(prompts, "go")
    embed(prompts, "go")
    assert len(ran) == 2
    assert not (tmp_path / "prompts").exists()


@pytest.mark.parametrize("damage", ["truncated", "bit", "empty", "text"])
def test_damaged_file_is_computed_anew(tmp_path, embedder, caplog, damage):
    expected = embed(embedder()[0], "go")
    file = files(tmp_path)[0]
    content = bytearray(file.read_bytes())
    content[-100] ^= 4
    file.write_bytes({"truncated": content[:-50], "bit": content, "empty": b"", "text": b"not a tensor"}[damage])
    prompts, ran = embedder()
    assert torch.equal(embed(prompts, "go"), expected)
    assert len(ran) == 1
    assert "computed anew" in caplog.text
    prompts, ran = embedder()
    assert torch.equal(embed(prompts, "go"), expected)
    assert not ran


def test_unwritable_folder_is_said_once(tmp_path, embedder, caplog):
    (tmp_path / "prompts").write_text("a file where the folder should be")
    prompts, ran = embedder()
    embed(prompts, "go", "stop")
    embed(prompts, "go", "stop")
    assert len(ran) == 2
    assert caplog.text.count("are not kept in") == 1


def test_folder_keeps_its_size(tmp_path):
    store = PromptStore(tmp_path, limit=9000)
    for number in range(4):
        path = store.path("encoder", torch.tensor([number]))
        store.save(path, torch.full((10, 100), float(number)), str(number))
        os.utime(path, (number, number))
        # Reading counts as use.
        if number == 1:
            assert store.load(store.path("encoder", torch.tensor([0]))) is not None
    kept = [store.load(store.path("encoder", torch.tensor([number]))) is not None for number in range(4)]
    assert kept == [True, False, False, True]
    store.save(tmp_path / "big", torch.zeros(10_000), "larger than the whole cache")
    assert not (tmp_path / "big").exists()


def _write(folder: str, start) -> None:
    store = PromptStore(folder, limit=10**9)
    path = store.path("encoder", torch.tensor([1]))
    start.wait()
    for _ in range(50):
        store.save(path, torch.arange(50_000.0), "same")
        found = store.load(path)
        assert found is not None
        assert torch.equal(found, torch.arange(50_000.0))


def test_processes_write_the_same_file_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    workers = [context.Process(target=_write, args=(str(tmp_path), start)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


def test_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert PromptStore("auto", limit=10**6).folder == tmp_path / "vla-backend" / "prompts"
    assert PromptStore("~/x", 1).folder.is_absolute()


def test_fingerprint_sees_names_shapes_types_and_values():
    base = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    others = [
        {"c": base["a"], "b": base["b"]},
        {"a": torch.zeros(3, 2), "b": base["b"]},
        {"a": torch.zeros(2, 3, dtype=torch.int32), "b": base["b"]},
        {"a": base["a"], "b": torch.tensor([1.0, 1.0, 1.0, 1.0000001])},
        {"a": base["a"], "b": torch.tensor([1.0, 1.0, 1.0, -1.0])},
    ]
    prints = [fingerprint(weights) for weights in (base, *others)]
    assert len(set(prints)) == 6
    assert fingerprint(dict(reversed(base.items()))) == prints[0]
    assert fingerprint({"a": torch.zeros(2, 3).bfloat16(), "b": torch.tensor(1.0)})
