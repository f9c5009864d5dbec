"""Two commands one after another on a tiny model: train, export."""

from __future__ import annotations

import json

import torch

from vla_train.cli import main

SMALL = [
    "model.repeated_diffusion_steps=1",
    "model.backbone.extract_layer=0",
    "model.backbone.max_sequence_length=32",
    "model.action_head={size: DiT-T, num_layers: 2, hidden_size: 16, output_dim: 16, action_dim: 4, max_seq_len: 64}",
    "model.action_head.state_dim=null",
    "data.image_size=[32, 32]",
    "data.video_delta_indices=[0, 1, 2, 3, 4]",
    "data.max_action_dim=4",
    "data.batch_size=1",
    "data.num_workers=0",
    "run.loggers=[jsonl]",
]


def test_train_and_export(config, tmp_path, monkeypatch, capfd):
    from vla_dit4dit import tiny

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pipeline = tmp_path / "pipeline"
    pipeline.rmdir()
    tiny.main([str(pipeline), "--width", "32", "--heads", "2", "--layers", "1"])
    command = ["train", "--backend", "cpu", "--config", str(config), *SMALL]
    run = tmp_path / "runs" / "demo"

    assert main([*command, "train.max_steps=1"]) == 0
    assert "done at step 1" in capfd.readouterr().out
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 1

    out = tmp_path / "exported"
    assert main(["checkpoint", "export", "--format", "dit4dit", str(run), str(out), "--backend", "cpu"]) == 0
    (weights,) = out.glob("checkpoints/*.pt")
    names = torch.load(weights, weights_only=True)
    assert {name.split(".")[0] for name in names} == {"backbone_interface", "action_model"}
    assert any(name.startswith("backbone_interface.extractor.vae.") for name in names)
