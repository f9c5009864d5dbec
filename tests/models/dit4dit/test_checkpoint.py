"""Upstream's weight files: strict reading, and writing in its layout."""

from __future__ import annotations

import json

import pytest
import torch
import yaml

from vla_dit4dit.checkpoint import export_checkpoint, find_checkpoint, import_checkpoint
from vla_dit4dit.errors import CheckpointError
from vla_dit4dit.upstream_config import translate
from vla_train.config.schema import Config
from vla_train.config.typed import plain


@pytest.fixture
def weights(tiny_config, build):
    """A complete upstream state dictionary with other values than a fresh model's."""
    state = build(tiny_config()).state_dict()
    return {key: value + 0.01 if value.is_floating_point() else value for key, value in state.items()}


@pytest.fixture
def run_folder(tmp_path, weights):
    folder = tmp_path / "upstream"
    (folder / "checkpoints").mkdir(parents=True)
    for step in (9, 100, 20):
        scaled = {key: value * (1 if step == 100 else 0) for key, value in weights.items()}
        torch.save(scaled, folder / "checkpoints" / f"steps_{step}_pytorch_model.pt")
    (folder / "checkpoints" / "steps_999_notes.txt").touch()
    return folder


@pytest.mark.parametrize("detached", [False, True])
def test_strict_import(tiny_config, build, weights, run_folder, detached):
    model = build(tiny_config())
    model.backbone_interface.extractor.prompts.unique(["go"], torch.device("cpu"))
    if detached:
        model.detach_frozen()
    import_checkpoint(model, run_folder)
    state = model.full_state_dict()
    assert state.keys() == weights.keys()
    assert all(torch.equal(state[key], weights[key]) for key in weights)
    # Embeddings of the old text encoder are gone.
    assert not model.backbone_interface.extractor.prompts.cache


def test_final_model_wins_over_steps(run_folder):
    assert find_checkpoint(run_folder).name == "steps_100_pytorch_model.pt"
    (run_folder / "final_model").mkdir()
    final = run_folder / "final_model" / "pytorch_model.pt"
    final.touch()
    assert find_checkpoint(run_folder) == final
    assert find_checkpoint(final) == final


def test_only_some_modules(tiny_config, build, weights, run_folder):
    model = build(tiny_config())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    import_checkpoint(model, run_folder, ["action_model"])
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key] if key.startswith("action_model.") else before[key]), key


def test_video_model_takes_a_joint_file(tiny_config, build, weights, run_folder):
    model = build(tiny_config(mode="video"))
    import_checkpoint(model, run_folder)
    name = "backbone_interface.extractor.transformer.patch_embed.proj.weight"
    assert torch.equal(model.state_dict()[name], weights[name])


def test_mismatch_names_the_nearest_and_loads_nothing(tiny_config, build, weights, tmp_path):
    model = build(tiny_config())
    before = model.action_model.action_decoder.layer2.bias.clone()
    changed = dict(weights)
    changed["action_model.action_decodr.layer2.bias"] = changed.pop("action_model.action_decoder.layer2.bias")
    changed["action_model.action_encoder.layer1.bias"] = torch.zeros(7)
    torch.save(changed, tmp_path / "model.pt")
    with pytest.raises(CheckpointError) as error:
        import_checkpoint(model, tmp_path / "model.pt")
    message = str(error.value)
    assert "1 unknown and 1 missing names, 1 different shapes" in message
    assert (
        "unknown action_model.action_decodr.layer2.bias (nearest: action_model.action_decoder.layer2.bias)" in message
    )
    assert "action_model.action_encoder.layer1.bias: (7,) in the file, (32,) in the model" in message
    assert torch.equal(model.action_model.action_decoder.layer2.bias, before)


def test_unusable_files(tiny_config, build, tmp_path):
    model = build(tiny_config())
    with pytest.raises(CheckpointError, match="no upstream checkpoint"):
        import_checkpoint(model, tmp_path)
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(CheckpointError, match="not a file of weights"):
        import_checkpoint(model, tmp_path / "text.pt")
    torch.save({"step": 3}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="state dictionary"):
        import_checkpoint(model, tmp_path / "other.pt")
    torch.save({"optimizer": Config()}, tmp_path / "pickle.pt")
    with pytest.raises(CheckpointError, match="not a file of weights"):
        import_checkpoint(model, tmp_path / "pickle.pt")
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="no module head"):
        import_checkpoint(model, tmp_path / "a.pt", ["head"])


@pytest.mark.parametrize("step", [None, 250])
def test_export_is_what_upstream_loads(tiny_config, build, tmp_path, upstream_facts, step):
    """Suffix .pt, two levels below the folder with config.yaml and dataset_statistics.json, upstream's names."""
    config = tiny_config()
    model = build(config)
    model.detach_frozen()
    complete = Config(model=config)
    complete.data.video_delta_indices, complete.data.action_video_freq_ratio = list(range(9)), 2
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(plain(complete)))
    statistics = {"franka": {"action": {"min": [0.0], "max": [1.0]}, "num_trajectories": 2}}

    files = export_checkpoint(model, tmp_path / "run", tmp_path / "out", statistics, step=step)

    name = "final_model/pytorch_model.pt" if step is None else "checkpoints/steps_250_pytorch_model.pt"
    assert files[0] == tmp_path / "out" / name
    folder = files[0].parent.parent
    assert json.loads((folder / "dataset_statistics.json").read_text()) == statistics
    state = torch.load(files[0], weights_only=True)
    assert {key: list(value.shape) for key, value in state.items()} == upstream_facts["state_dict_shapes"]
    written = yaml.safe_load((folder / "config.yaml").read_text())
    facts = upstream_facts["accessed_config"]["framework"]
    ours = written["framework"]["action_model"]
    for key, value in facts["action_model"].items():
        if key != "diffusion_model_cfg":
            assert ours[key] == value, key
    assert ours["diffusion_model_cfg"].items() >= facts["action_model"]["diffusion_model_cfg"].items()
    cosmos = written["framework"]["cosmos25"]
    assert {key: cosmos[key] for key in facts["cosmos25"] if key != "base_model"} == {
        key: value for key, value in facts["cosmos25"].items() if key != "base_model"
    }
    # The round trip gives a model of the same shapes.
    native = translate(written)["model"]
    assert native["backbone"]["path"] == config.backbone.path
    import_checkpoint(build(config), folder)


def test_export_needs_a_run_and_a_head(tiny_config, build, tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.yaml"):
        export_checkpoint(build(tiny_config()), tmp_path, tmp_path / "out", {})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(plain(Config(model=tiny_config(mode="video")))))
    with pytest.raises(CheckpointError, match="mode video"):
        export_checkpoint(build(tiny_config(mode="video")), tmp_path, tmp_path / "out", {})
