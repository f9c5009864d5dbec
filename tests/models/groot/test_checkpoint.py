"""Checkpoints in the layout of the hub."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from vla_groot.architecture import Architecture
from vla_groot.backbone_files import KNOWN, BackboneFiles
from vla_groot.checkpoint import (
    build_empty,
    build_new,
    find_checkpoint,
    import_checkpoint,
    load_model,
    read_weights,
    save_backbone_files,
    save_checkpoint,
)
from vla_groot.errors import BackboneError, CheckpointError, ConfigError
from vla_groot.outline import RELEASED

from .conftest import DATA

CHECKPOINT = DATA / "checkpoint"


@pytest.fixture
def copy(tmp_path):
    """A checkpoint far from the tiny backbone's folder."""
    return shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")


def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"asked the hub for {args}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)


@pytest.mark.parametrize("shard", ["5GB", "300KB"])
def test_round_trip(backend, tmp_path, facts, shard):
    model = load_model(CHECKPOINT, backend)
    files = save_checkpoint(tmp_path / "out", model.config, model.full_state_dict(), max_shard_size=shard)
    assert (len(files) > 3) == (shard == "300KB")
    if shard == "300KB":
        assert "model.safetensors.index.json" in files
    written, original = read_weights(tmp_path / "out"), load_file(CHECKPOINT / "model.safetensors")
    assert {key: list(value.shape) for key, value in written.items()} == facts("keys")["saved_in_safetensors"]
    assert all(torch.equal(written[key], original[key]) for key in original)
    assert Architecture.read(tmp_path / "out") == Architecture.read(CHECKPOINT)
    again = load_model(tmp_path / "out", backend, backbone="tiny_backbone/Qwen/Qwen3-VL-tiny")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_config_lists_only_what_differs_from_the_defaults():
    raw = json.loads((CHECKPOINT / "config.json").read_text())
    written = Architecture.read(CHECKPOINT).to_dict()
    assert written["architectures"] == ["Gr00tN1d7"]
    assert "max_num_embodiments" in written
    assert "noise_s" not in written
    assert {key: raw[key] for key in written if key in raw} == {key: written[key] for key in written if key in raw}
    assert Architecture.from_dict({}) == Architecture()


@pytest.mark.parametrize(("name", "changes"), [("released_config", RELEASED), ("code_default_config", {})])
def test_real_shapes(backend, facts, name, changes):
    model = build_empty(Architecture().updated(changes), KNOWN["nvidia/Cosmos-Reason2-2B"], backend)
    wanted = facts("keys_real")[name]
    state = model.state_dict()
    assert all(value.is_meta for value in state.values())
    count = Counter((re.sub(r"\.\d+\.", ".{i}.", key, count=1), tuple(value.shape)) for key, value in state.items())
    assert count == {(entry["pattern"], tuple(entry["shape"])): entry["count"] for entry in wanted["patterns"]}
    assert len(state) == sum(entry["count"] for entry in wanted["patterns"])
    assert sum(value.numel() for value in model.parameters()) == wanted["params"]
    assert sum(value.numel() for value in model.action_head.parameters()) == wanted["head"]


def test_no_download_when_the_checkpoint_holds_the_weights(backend, copy, monkeypatch):
    offline(monkeypatch)
    raw = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**raw, "model_name": "nvidia/Cosmos-Reason2-2B"}))
    with pytest.raises(BackboneError, match="text width is 2048"):  # the published shape, known without a download
        load_model(copy, backend)
    save_backbone_files(copy, BackboneFiles("tiny_backbone/Qwen/Qwen3-VL-tiny"))
    assert load_model(copy, backend).backbone.image_token_id == 262


def test_relative_backbone_is_found_from_anywhere(backend, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    offline(monkeypatch)
    load_model(CHECKPOINT, backend)


def test_any_local_path_may_hold_the_backbone(backend, tmp_path, monkeypatch):
    offline(monkeypatch)
    folder = shutil.copytree(DATA / "tiny_backbone" / "Qwen" / "Qwen3-VL-tiny", tmp_path / "vlm")
    load_model(CHECKPOINT, backend, backbone=str(folder))


def test_new_head_on_the_backbones_own_weights(backend, tmp_path):
    folder = shutil.copytree(DATA / "tiny_backbone" / "Qwen" / "Qwen3-VL-tiny", tmp_path / "vlm")
    weights = load_file(CHECKPOINT / "model.safetensors")
    prefix = "backbone.model."
    own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
    last = "model.language_model.layers.2."
    own |= {key.replace(".2.", ".3."): value.clone() for key, value in own.items() if key.startswith(last)}
    own["lm_head.weight"] = torch.zeros(264, 64)
    save_file(own, folder / "model.safetensors")
    model = build_new(Architecture.read(CHECKPOINT), BackboneFiles(str(folder)), backend)
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key]) == key.startswith("backbone.") or "norm" in key or ".b" in key, key
    del own["model.visual.merger.norm.bias"]
    save_file(own, folder / "model.safetensors")
    with pytest.raises(BackboneError, match=r"missing: backbone.*merger.norm.bias"):
        build_new(Architecture.read(CHECKPOINT), BackboneFiles(str(folder)), backend)


def test_new_head_on_a_backbone_in_bfloat16(backend, tmp_path):
    """The backbone that a new head is put on is kept as asked, too."""
    folder = shutil.copytree(DATA / "tiny_backbone" / "Qwen" / "Qwen3-VL-tiny", tmp_path / "vlm")
    weights, prefix = load_file(CHECKPOINT / "model.safetensors"), "backbone.model."
    own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
    save_file(own, folder / "model.safetensors")
    frozen = {"load_bf16": True, "tune_llm": False, "tune_visual": False, "tune_top_llm_layers": 0}
    model = build_new(Architecture.read(CHECKPOINT).updated(frozen), BackboneFiles(str(folder)), backend)
    assert {parameter.dtype for parameter in model.backbone.parameters()} == {torch.bfloat16}
    assert model.head_dtype == torch.float32


def test_backbone_in_bfloat16(backend):
    model = load_model(
        CHECKPOINT,
        backend,
        changes={"load_bf16": True, "tune_llm": False, "tune_visual": False, "tune_top_llm_layers": 1},
    )
    language = model.backbone.qwen.language_model
    assert language.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
    assert language.layers[2].mlp.up_proj.weight.dtype == torch.float32  # trained
    assert model.head_dtype == torch.float32


class TestErrors:
    def test_wrong_shape(self, backend, copy):
        with pytest.raises(CheckpointError, match=r"W1\.W is \(12, 18, 64\) in the checkpoint, \(12, 19, 64\)"):
            load_model(copy, backend, changes={"max_action_dim": 19}, backbone="tiny_backbone/Qwen/Qwen3-VL-tiny")

    def test_missing_and_unexpected_weights(self, backend, copy):
        weights = load_file(copy / "model.safetensors")
        weights["action_head.other"] = weights.pop("action_head.vlln.weight")
        save_file(weights, copy / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"missing: action_head.vlln.weight.*not in the model: action_head.o"):
            load_model(copy, backend, backbone="tiny_backbone/Qwen/Qwen3-VL-tiny")

    def test_unknown_setting(self, backend):
        with pytest.raises(ConfigError, match="Unknown setting: select_layers"):
            load_model(CHECKPOINT, backend, changes={"select_layers": 3})

    def test_other_model(self, backend, copy):
        (copy / "config.json").write_text('{"model_type": "llama"}')
        with pytest.raises(CheckpointError, match="model_type 'llama'"):
            load_model(copy, backend)

    def test_no_such_folder(self):
        with pytest.raises(CheckpointError, match="correct the path"):
            find_checkpoint("./nowhere")

    def test_missing_shard(self, backend, tmp_path):
        model = load_model(CHECKPOINT, backend)
        files = save_checkpoint(tmp_path, model.config, model.full_state_dict(), max_shard_size="300KB")
        (tmp_path / next(name for name in files if "00002" in name)).unlink()
        with pytest.raises(CheckpointError, match="not found: model-00002"):
            load_model(tmp_path, backend)

    @pytest.mark.parametrize(
        ("error", "message"),
        [("GatedRepoError", "accept it at https://huggingface.co/"), ("RepositoryNotFoundError", "correct the name")],
    )
    def test_hub(self, monkeypatch, error, message):
        from huggingface_hub import errors

        def fail(*args, **kwargs):
            exception = getattr(errors, error)
            raise exception.__new__(exception)

        monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint("someone/gated")
        with pytest.raises(BackboneError, match=message):
            BackboneFiles("someone/gated").folder()


def test_import_into_a_model_with_detached_networks(backend, copy):
    weights = load_file(copy / "model.safetensors")
    save_file({key: value + 1 for key, value in weights.items()}, copy / "model.safetensors")
    model = load_model(CHECKPOINT, backend, changes={"tune_llm": False, "tune_visual": False})
    model.detach_frozen()
    import_checkpoint(model, copy, ["action_head.vlln"])
    assert torch.equal(model.action_head.vlln.weight, weights["action_head.vlln.weight"] + 1)
    assert torch.equal(model.action_head.model.proj_out_1.bias, weights["action_head.model.proj_out_1.bias"])
    import_checkpoint(model, copy)
    key = "backbone.model.model.visual.merger.norm.bias"
    assert torch.equal(model.full_state_dict()[key], weights[key] + 1)


def test_hub_id_is_downloaded(backend, monkeypatch):
    asked = SimpleNamespace()

    def download(name, revision, allow_patterns):
        asked.name, asked.revision, asked.patterns = name, revision, allow_patterns
        return str(CHECKPOINT)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    load_model("someone/groot", backend, revision="v1")
    assert (asked.name, asked.revision) == ("someone/groot", "v1")
    assert "*.safetensors" in asked.patterns
