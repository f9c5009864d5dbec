"""Loading pipelines from folders and the hub cache, and what is said when they or a batch do not fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from vla_dit4dit.config import ConfigError
from vla_dit4dit.cosmos import load_parts
from vla_dit4dit.errors import BatchError, PipelineError
from vla_dit4dit.model import build as build_entry
from vla_train.data.config import DataConfig


@pytest.fixture
def pipeline(tmp_path, data_folder):
    folder = tmp_path / "pipeline"
    shutil.copytree(data_folder / "tiny_pipe", folder)
    return folder


def edit(file, **values):
    content = json.loads(file.read_text())
    content.update(values)
    file.write_text(json.dumps(content))


def test_hub_id_and_revision(tmp_path, monkeypatch, data_folder, tiny_config, backend):
    """A hub id is read from the cache at its revision, without network."""
    commit = "0" * 40
    repository = tmp_path / "models--someone--tiny-cosmos"
    shutil.copytree(data_folder / "tiny_pipe", repository / "snapshots" / commit)
    reference = repository / "refs" / "diffusers" / "base" / "post-trained"
    reference.parent.mkdir(parents=True)
    reference.write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    parts = load_parts(tiny_config(backbone={"path": "someone/tiny-cosmos"}).backbone, backend)
    expected = load_parts(tiny_config().backbone, backend).transformer.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in parts.transformer.state_dict().items())
    with pytest.raises(PipelineError, match="revision other") as error:
        load_parts(tiny_config(backbone={"path": "someone/tiny-cosmos", "revision": "other"}).backbone, backend)
    assert "local_files_only=false" in str(error.value)


def test_dtypes(tiny_config, backend):
    settings = {"dtype": "float32", "frozen_dtype": "bfloat16"}
    parts = load_parts(tiny_config(backbone=settings).backbone, backend)
    assert (parts.transformer.dtype, parts.vae.dtype, parts.text_encoder.dtype) == (
        torch.float32,
        torch.bfloat16,
        torch.bfloat16,
    )
    parts = load_parts(tiny_config(backbone={**settings, "train_text_encoder": True}).backbone, backend)
    assert parts.text_encoder.dtype == torch.float32


@pytest.mark.parametrize("path", ["/nowhere/cosmos", "./nowhere", "a/b/c"])
def test_missing_folder(tiny_config, backend, path):
    with pytest.raises(PipelineError, match="There is no video model at"):
        load_parts(tiny_config(backbone={"path": path}).backbone, backend)


def test_folder_without_pipeline(tmp_path, tiny_config, backend):
    with pytest.raises(PipelineError, match=r"model_index\.json"):
        load_parts(tiny_config(backbone={"path": str(tmp_path)}).backbone, backend)


def test_another_pipeline(pipeline, tiny_config, backend):
    edit(pipeline / "model_index.json", _class_name="WanPipeline", text_encoder=["transformers", "UMT5EncoderModel"])
    with pytest.raises(PipelineError, match=r"WanPipeline.*UMT5EncoderModel"):
        load_parts(tiny_config(backbone={"path": str(pipeline)}).backbone, backend)


def test_incomplete_pipeline(pipeline, tiny_config, backend):
    (pipeline / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(PipelineError, match="The vae of the video model"):
        load_parts(tiny_config(backbone={"path": str(pipeline)}).backbone, backend)


@pytest.mark.parametrize("layer", [4, 17])
def test_feature_block_out_of_range(tiny_config, backend, layer):
    with pytest.raises(PipelineError, match="blocks 0 to 3"):
        load_parts(tiny_config(backbone={"extract_layer": layer}).backbone, backend)


def test_head_must_fit_the_features(tiny_config, build):
    with pytest.raises(ConfigError, match="features are 48 wide"):
        build(tiny_config(head={"cross_attention_dim": 2048}))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"mode": "Joint"}, "model.mode"),
        ({"repeated_diffusion_steps": 0}, "model.repeated_diffusion_steps"),
        ({"backbone": {"path": ""}}, "model.backbone.path"),
        ({"backbone": {"dtype": "float64"}}, "model.backbone.dtype"),
        ({"backbone": {"extract_layer": -1}}, "model.backbone.extract_layer"),
        ({"backbone": {"future_loss_type": "l1"}}, "model.backbone.future_loss_type"),
        ({"head": {"size": "DiT-XL"}}, "model.action_head.size"),
        ({"head": {"action_horizon": 65}}, "model.action_head.action_horizon"),
    ],
)
def test_settings_are_checked_before_anything_is_loaded(tiny_config, backend, settings, key):
    config = SimpleNamespace(model=tiny_config(**settings), data=DataConfig())
    with pytest.raises(ConfigError, match=key):
        build_entry(config, backend)
    assert [found for found, _, _ in config.model.problems()] == [key]


def test_built_from_a_complete_configuration(tiny_config, backend):
    data = DataConfig(video_delta_indices=list(range(9)), action_video_freq_ratio=2)
    model = build_entry(SimpleNamespace(model=tiny_config(), data=data), backend)
    assert model.training
    assert model.backbone_interface.extractor.clip_frames == 5
    assert not model.unused_parameters_possible


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 5, 3, 40, 64), "multiples of 16"),
        ((2, 5, 3, 32, 56), "multiples of 16"),
        ((2, 5, 1, 32, 64), "batch, frames, 3"),
        ((2, 3, 32, 64), "batch, frames, 3"),
        ((3, 5, 3, 32, 64), "2 instructions came with 3 samples"),
    ],
)
def test_images_that_do_not_fit(tiny_config, build, recorded_batch, shape, message):
    with pytest.raises(BatchError, match=message):
        build(tiny_config())({**recorded_batch(), "images": torch.zeros(shape)})


def test_importing_the_package_imports_no_torch():
    code = "import sys, vla_dit4dit; assert vla_dit4dit.entry.name == 'dit4dit'; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
