"""Checkpoints are complete or absent; resuming takes the newest good one and says what it passed over."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.train import jobs, toy
from vla_train.checkpoint import layout, save
from vla_train.checkpoint.errors import CheckpointError
from vla_train.checkpoint.export import export
from vla_train.checkpoint.load import load_model
from vla_train.checkpoint.manifest import Manifest, describe
from vla_train.checkpoint.rng import load_rng, save_rng
from vla_train.checkpoint.state import TrainingState
from vla_train.checkpoint.weights import consolidated
from vla_train.train.run import run


def _train(root: Path, backend, **changes):
    return run(toy.config(root, **changes), toy.entry, backend)


def _steps(root: Path) -> list[int]:
    return layout.saved_steps(root / "run" / layout.FOLDER)


def _folder(root: Path, step: int) -> Path:
    return root / "run" / layout.FOLDER / layout.step_name(step)


def _shard(root: Path, step: int) -> Path:
    return next(_folder(root, step).glob("state-*.safetensors"))


@pytest.mark.parametrize("accumulation", [1, 2])
def test_one_rank_continues_to_the_bit(tmp_path, accumulation):
    changes = {"train__gradient_accumulation_steps": accumulation, "train__max_steps": 25, "train__save_interval": 12}
    for name in ("whole", "resumed"):
        (tmp_path / name).mkdir()
    how = {"model": {"dropout": 0.3}, "noise": True}
    whole = jobs.train(tmp_path / "whole", 0, changes, **how)
    start = "whole/run/checkpoints/step_00000012"
    resumed = jobs.train(tmp_path / "resumed", 0, changes, continue_from=start, **how)
    # 40 samples are ten batches: the runs go through several epochs.
    assert resumed["seen"] == whole["seen"][12 * accumulation :]
    expected, got = jobs.records(tmp_path / "whole")[12:], jobs.records(tmp_path / "resumed")
    for name in ("step", "total_loss", "grad_norm", "learning_rate/head"):
        assert [record[name] for record in expected] == [record[name] for record in got], name
    left, right = jobs.weights(tmp_path / "whole", 25), jobs.weights(tmp_path / "resumed", 25)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_what_a_checkpoint_holds(tmp_path, backend):
    _train(tmp_path, backend, train__max_steps=3)
    folder = _folder(tmp_path, 3)
    manifest = Manifest.read(folder)
    assert (manifest.step, manifest.world_size, manifest.strategy) == (3, 1, "ddp")
    names = {path.name for path in folder.iterdir()} - {layout.MANIFEST}
    assert set(manifest.files) == names
    assert {layout.POSITION, layout.SCALER, layout.rng_name(0, 1)} < names
    assert manifest.problems(folder) == []
    assert (folder.parent / layout.LATEST).read_text().strip() == folder.name
    assert json.loads((folder / layout.POSITION).read_text())["samples"] == 12
    # The frozen encoder is no part of it.
    assert {name.partition(".")[0] for name in consolidated(folder)} == {"trunk", "head", "unused"}


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _no_manifest(path: Path) -> None:
    (path.parent / layout.MANIFEST).unlink()


def _broken_manifest(path: Path) -> None:
    (path.parent / layout.MANIFEST).write_text('{"step": 6, "files"')


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_truncate, "bytes instead of"),
        (_flip, "SHA-256 differs"),
        (Path.unlink, "is missing"),
        (_no_manifest, "manifest.json"),
        (_broken_manifest, "Expecting"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path, backend, capfd, harm, words):
    _train(tmp_path, backend)
    before = jobs.records(tmp_path)
    harm(_shard(tmp_path, 6))
    capfd.readouterr()
    outcome = _train(tmp_path, backend)
    said = capfd.readouterr().out
    assert "step_00000006 is passed over" in said
    assert words in said
    assert "step_00000003 (step 3)" in said
    assert outcome.step == 6
    # Steps 4 to 6 were made again and are logged once.
    after = jobs.records(tmp_path)
    assert [record["step"] for record in after] == [1, 2, 3, 4, 5, 6]
    assert [record["total_loss"] for record in after] == [record["total_loss"] for record in before]
    assert Manifest.read(_folder(tmp_path, 6)).problems(_folder(tmp_path, 6)) == []


def test_a_damaged_checkpoint_that_was_asked_for_is_an_error(tmp_path, backend):
    _train(tmp_path, backend)
    _flip(_shard(tmp_path, 6))
    with pytest.raises(CheckpointError, match="SHA-256 differs"):
        _train(tmp_path, backend, train__resume=str(_folder(tmp_path, 6)))
    outcome = _train(tmp_path, backend, train__resume=str(_folder(tmp_path, 3)), run__id="other")
    assert outcome.step == 6


def test_never_refuses_to_overwrite(tmp_path, backend):
    _train(tmp_path, backend, train__max_steps=3)
    with pytest.raises(CheckpointError, match="already has checkpoints"):
        _train(tmp_path, backend, train__resume="never")


def test_rotation_keeps_the_newest(tmp_path, backend):
    _train(tmp_path, backend, train__max_steps=7, train__save_interval=1, train__keep_checkpoints=2)
    assert _steps(tmp_path) == [7, 6]


def test_rotation_counts_complete_ones_only(tmp_path):
    for step in (1, 2, 3, 4):
        (tmp_path / layout.step_name(step)).mkdir()
    for step in (1, 2):
        (tmp_path / layout.step_name(step) / layout.MANIFEST).write_text("{}")
    assert layout.rotate(tmp_path, keep=1) == [1]
    assert layout.saved_steps(tmp_path) == [4, 3, 2]
    assert layout.rotate(tmp_path, keep=1) == []


@pytest.mark.parametrize("moment", ["shards", "checksums", "manifest", "rename"])
def test_a_save_that_fails_leaves_the_previous_one(tmp_path, backend, monkeypatch, moment):
    _train(tmp_path, backend, train__max_steps=3)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    if moment == "shards":
        monkeypatch.setattr(backend, "save_sharded", full)
    elif moment == "checksums":
        monkeypatch.setattr(save, "describe", full)
    elif moment == "manifest":
        monkeypatch.setattr(Manifest, "write", full)
    else:
        monkeypatch.setattr(save.os, "rename", full)
    with pytest.raises(CheckpointError, match=r"(?s)step_00000006 was not written.*No space left"):
        _train(tmp_path, backend)
    monkeypatch.undo()
    assert _steps(tmp_path) == [3]
    assert [path.name for path in (tmp_path / "run" / layout.FOLDER).glob(".*")] == []
    assert _train(tmp_path, backend).step == 6


def test_what_a_killed_save_leaves_is_ignored_and_cleared(tmp_path, backend):
    _train(tmp_path, backend, train__max_steps=3)
    draft = tmp_path / "run" / layout.FOLDER / layout.draft_name(6)
    draft.mkdir()
    (draft / "state-00000-of-00001.safetensors").write_bytes(b"half")
    _train(tmp_path, backend)
    assert _steps(tmp_path) == [6, 3]
    assert not draft.exists()


def test_another_model_is_named(tmp_path, backend):
    _train(tmp_path, backend, train__max_steps=3)
    config = toy.config(tmp_path)
    config.train.freeze = ["head"]
    with pytest.raises(CheckpointError, match=r"fits no trained parameter: optimizer\.head"):
        run(config, toy.entry, backend)


def test_random_state_survives_exactly(tmp_path, backend):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    torch.randn(1), random.gauss(0, 1), np.random.randn()  # both hold half of a Gaussian pair now
    save_rng(backend, tmp_path / "rng.safetensors")
    drawn = [torch.rand(3).tolist(), random.gauss(0, 1), np.random.randn(), np.random.rand(), random.random()]
    torch.rand(5), random.random(), np.random.rand(7)
    load_rng(backend, tmp_path / "rng.safetensors")
    assert drawn == [torch.rand(3).tolist(), random.gauss(0, 1), np.random.randn(), np.random.rand(), random.random()]


def test_tied_weights_are_written_once(tmp_path, backend):
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    optimizer = torch.optim.AdamW(model.parameters())
    model["a"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = TrainingState(model, optimizer, 0, 1)
    assert "model.b.weight" not in state.tensors()
    backend.save_sharded(state, tmp_path)
    kept = {name: tensor.clone() for name, tensor in state.tensors().items()}
    for parameter in model.parameters():
        parameter.data.zero_()
    optimizer.state.clear()
    backend.load_sharded(state, tmp_path)
    assert model["b"].weight is model["a"].weight
    assert all(torch.equal(tensor, kept[name]) for name, tensor in state.tensors().items())
    with pytest.raises(CheckpointError, match=r"missing: a\.bias"):
        state.load_tensors({name: tensor for name, tensor in kept.items() if name != "model.a.bias"})
    with pytest.raises(CheckpointError, match=r"another shape: a\.bias"):
        state.load_tensors(kept | {"model.a.bias": torch.zeros(5)})


def test_export_and_load(tmp_path, backend):
    _train(tmp_path, backend, train__max_steps=3)
    config = toy.config(tmp_path)
    files = export(config, toy.entry, backend, tmp_path / "run", _folder(tmp_path, 3), tmp_path / "out")
    assert [file.name for file in files] == ["toy.safetensors"]
    model = load_model(config, toy.entry, backend, _folder(tmp_path, 3))
    for name, value in consolidated(_folder(tmp_path, 3)).items():
        assert torch.equal(model.state_dict()[name], value)
    (tmp_path / "run" / "dataset_statistics.json").unlink()
    with pytest.raises(CheckpointError, match=r"dataset_statistics\.json is missing"):
        export(config, toy.entry, backend, tmp_path / "run", _folder(tmp_path, 3), tmp_path / "out2")
    _truncate(_shard(tmp_path, 3))
    with pytest.raises(CheckpointError, match="damaged"):
        load_model(config, toy.entry, backend, _folder(tmp_path, 3))


def test_describe_reads_every_byte(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    entry = describe(tmp_path / "file", sync=True)
    assert entry.size == 3
    assert entry.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class _Evil:
    def __reduce__(self):
        return Path.touch, (Path("was-run"),)


def test_nothing_in_a_file_of_deepspeed_is_run(tmp_path, monkeypatch):
    """Not even when the manifest vouches for the file."""
    from vla_backend.defaults.zero_files import weights_only

    monkeypatch.chdir(tmp_path)
    torch.save({"a": torch.ones(2), "b": _Evil()}, tmp_path / "evil.pt")
    with weights_only(), pytest.raises(Exception, match="Weights only load failed"):
        torch.load(tmp_path / "evil.pt", weights_only=False)
    assert not (tmp_path / "was-run").exists()
    torch.load(tmp_path / "evil.pt", weights_only=False)  # the guard ends with its block
    assert (tmp_path / "was-run").exists()
