"""Commands one after another on a tiny model: train, export, serve."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import torch

from vla_train.cli import main
from vla_train.serve.client import PolicyClient

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


def test_train_export_serve(config, tmp_path, monkeypatch, capfd):
    from vla_dit4dit import tiny

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    pipeline = tmp_path / "pipeline"
    pipeline.rmdir()
    tiny.main([str(pipeline), "--width", "32", "--heads", "2", "--layers", "1"])
    command = ["train", "--backend", "cpu", "--config", str(config), *SMALL]
    run = tmp_path / "runs" / "demo"

    assert main([*command, "train.max_steps=1"]) == 0
    assert "done at step 1" in capfd.readouterr().out
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 1

    assert main(["explain", "--run", str(run), "--json"]) == 0
    ledger = json.loads(capfd.readouterr().out)
    decided = {(section, line["subject"]): line for section in ledger for line in ledger[section]}
    assert decided["choice", "backend"]["source"] == "--backend says so"
    assert decided["configuration", "train.max_steps"]["source"] == "override 'train.max_steps=1'"
    assert decided["configuration", "train.max_steps"]["replaced"] == 100_000
    assert decided["environment", "DS_ACCELERATOR"]["source"].startswith("plugin cpu")
    assert decided["backend", "dist_backend"]["value"] == "gloo"
    assert decided["set-up", "strategy"]["value"] == "ddp"
    assert main(["explain", "--diff", str(run), str(run / "checkpoints" / "step_00000001")]) == 0
    assert "were decided alike" in capfd.readouterr().out

    out = tmp_path / "exported"
    assert main(["checkpoint", "export", "--format", "dit4dit", str(run), str(out), "--backend", "cpu"]) == 0
    (weights,) = out.glob("checkpoints/*.pt")
    names = torch.load(weights, weights_only=True)
    assert {name.split(".")[0] for name in names} == {"backbone_interface", "action_model"}
    assert any(name.startswith("backbone_interface.extractor.vae.") for name in names)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ["serve", "--run", str(run), "--backend", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([sys.executable, "-m", "vla_train.cli", *serve, "--idle-timeout", "120"])
    try:
        example = {"image": [np.zeros((32, 32, 3), np.uint8)], "lang": "push the button"}
        with _connected(port, server) as client:
            first, again = (client.ask({"examples": [example], "seed": 7}) for _ in range(2))
            assert first["ok"], first
            assert first["data"]["normalized_actions"].shape == (1, 8, 4)
            np.testing.assert_array_equal(first["data"]["normalized_actions"], again["data"]["normalized_actions"])
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130


def _connected(port: int, server: subprocess.Popen) -> PolicyClient:
    """A connection as soon as the server listens; loading the model takes a while."""
    while server.poll() is None:
        try:
            return PolicyClient("127.0.0.1", port, open_timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.2)
    raise AssertionError(f"the server ended with {server.returncode}")
