"""LeRobot sets as embodiments, and a whole fine-tuning with the engine: train, resume, evaluate, export, serve."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from vla_groot.batch import collate
from vla_groot.checkpoint import load_model
from vla_groot.data import build_dataset
from vla_groot.errors import ConfigError, EmbodimentError
from vla_groot.policy import GrootPolicy
from vla_groot.sources import relative_statistics
from vla_train import models
from vla_train.closed_loop.environments import Observation
from vla_train.closed_loop.policy import Policy
from vla_train.config import load_config
from vla_train.data.errors import DataError

from .conftest import DATA
from .test_custom import MODALITY, POSE

SETS = Path(__file__).parents[2] / "data" / "lerobot"


@pytest.fixture(autouse=True)
def _statistics_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def make(tmp_path):
    (tmp_path / "modality.yaml").write_text(yaml.safe_dump(MODALITY))

    def config(*extra: str):
        overrides = [
            f"model.base_model={DATA / 'checkpoint'}",
            f"model.modality_config={tmp_path / 'modality.yaml'}",
            f"data.datasets=[{{path: {SETS / 'tiny_libero'}}}]",
            f"run.root={tmp_path / 'runs'}",
            "run.id=tiny",
            "run.loggers=[jsonl]",
            "data.batch_size=2",
            "data.num_workers=0",
            "model.sampling.shard_size=8",
            "model.sampling.shards_per_epoch=4",
            "parallel.mixed_precision=fp32",
            *extra,
        ]
        return load_config([], overrides, "groot")[0]

    return config


@pytest.fixture
def dataset(make, backend):
    return build_dataset(make(), backend.video_ctx)


def test_the_live_sample_is_that_of_training(dataset):
    """The pictures of two steps ago, which this embodiment asks for, come from what has been seen."""
    source = dataset.sources[0]
    seen = []
    for step in range(4):
        window = source.window(source.episodes[1], step)
        video = {name: frames[-1] for name, frames in window.video.items()}
        seen.append(Observation(video, {name: rows[0] for name, rows in window.state.items()}, window.language))
        live, trained = dataset.live_sample(0, seen), dataset.sample(0, source.episodes[1], step)
        for key in ("state", "input_ids", "pixel_values", "image_grid_thw"):
            np.testing.assert_array_equal(np.asarray(live[key]), np.asarray(trained[key]))
    assert dataset.decode_actions(np.zeros((1, *live["action"].shape)), [live]).shape == (1, 8, 4)


class Still(torch.nn.Module):
    """Predicts zeros, normalised."""

    def predict_action(self, batch, generator=None):
        return torch.zeros(len(batch["sample_ids"]), 16, 18)


def test_in_closed_loop_relative_actions_start_at_the_present_state(dataset, backend):
    source, policy = dataset.sources[0], Policy(Still(), dataset, collate, backend)
    chunks, states = [], []
    for step in (0, 9):
        window = source.window(source.episodes[1], step)
        video = {name: frames[-1] for name, frames in window.video.items()}
        states.append({name: rows[0] for name, rows in window.state.items()})
        chunks.append(policy([Observation(video, states[-1], window.language)], torch.Generator()))
    assert [len(chunk) for chunk in chunks] == [8, 8]
    for first, second in zip(*chunks, strict=True):
        for name in POSE:
            np.testing.assert_allclose(second[name] - first[name], states[1][name] - states[0][name], atol=1e-6)
            assert not np.allclose(states[1][name], states[0][name])
        np.testing.assert_array_equal(first["gripper"], second["gripper"])


def test_sample(dataset):
    assert len(dataset) == sum(len(steps) for n, s in dataset.stream._schedule for _, steps in dataset.shards[n][s])
    sample = dataset[0]
    name, episode, step = sample["sample_id"].split("/")
    assert (name, int(episode) in (0, 1)) == ("tiny_libero", True)
    assert sample["action"].shape == sample["action_mask"].shape == (16, 18)
    assert sample["action_mask"][:8, :4].all()
    assert sample["action_mask"].sum() == 32
    assert sample["embodiment_id"] == 10
    assert sample["image_grid_thw"].tolist() == [[1, 4, 4]] * 4  # two frames of two views
    again = dataset[0]
    assert all(np.array_equal(sample[key], again[key]) for key in ("action", "state", "pixel_values"))
    source = dataset.sources[0]
    row = source.dataset.table(source.dataset.listed[int(episode)])
    low, high = (
        np.asarray(dataset.processor.statistics["new_embodiment"]["relative_action"]["x"][k]) for k in ("min", "max")
    )
    x = row["action"][int(step) : int(step) + 8, :1] - row["observation.state"][int(step), :1]
    np.testing.assert_allclose(sample["action"][:8, :1], 2 * (x - low) / (high - low) - 1, atol=1e-5)


def test_epochs_follow_the_endless_order(dataset):
    first = [dataset[index]["sample_id"] for index in range(4)]
    dataset.set_epoch(1)
    assert [dataset[index]["sample_id"] for index in range(4)] != first
    dataset.set_epoch(0)
    assert [dataset[index]["sample_id"] for index in range(4)] == first
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def test_samples_are_named_without_being_read(dataset):
    dataset.set_epoch(1)
    assert [dataset.sample_id(index) for index in (0, 5)] == [dataset[index]["sample_id"] for index in (0, 5)]


def test_collated_batch_equals_the_processors(make, backend):
    from vla_groot.processor import Sample

    dataset = build_dataset(make("data.holdout_episodes=1"), backend.video_ctx, "eval")
    samples = [dataset[0], dataset[5]]
    samples[1] = {**samples[1], "input_ids": samples[1]["input_ids"][3:]}  # another length
    batch = collate(samples)
    assert batch["attention_mask"].sum(1).tolist() == [len(sample["input_ids"]) for sample in samples]
    assert batch["input_ids"][1, :3].tolist() == [dataset.processor.vlm.tokenizer.pad_token_id] * 3
    window = dataset.sources[0].window(dataset.sources[0].episodes[0], 0)
    prepared = dataset.processor.prepare(
        Sample(window.video, window.state, window.action, window.language, "new_embodiment")
    )
    wanted, found = dataset.processor.collate([prepared]), collate(samples[:1])
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, atol=1e-5, rtol=0)


def test_relative_statistics_are_those_of_all_windows(dataset):
    source = dataset.sources[0]
    found = relative_statistics(source, "new_embodiment", dataset.processor.embodiments["new_embodiment"])
    values = []
    for episode in source.episodes:
        table = source.dataset.table(episode)
        for step in range(episode.length - 7):
            values.append(table["action"][step : step + 8, 1:2] - table["observation.state"][step, 1:2].astype(float))
    assert set(found) == set(POSE)
    np.testing.assert_allclose(found["y"]["max"], np.stack(values).max(0))
    np.testing.assert_allclose(found["y"]["q01"], np.quantile(np.stack(values), 0.01, axis=0))


def test_train_resume_evaluate_export_serve(make, backend, tmp_path, capsys):
    from vla_train.evaluate import evaluate_checkpoint
    from vla_train.train.run import run

    settings = (
        "train.learning_rate.base=3e-3",
        "train.optimizer.betas=[0.9,0.999]",
        "train.log_interval=1",
        "train.scheduler.name=constant",
        "data.holdout_episodes=1",
        "model.tune_top_llm_layers=1",
    )
    entry = models.find("groot")
    straight = run(make("train.max_steps=6", "run.id=straight", *settings), entry, backend)
    run(make("train.max_steps=3", *settings), entry, backend)
    outcome = run(make("train.max_steps=6", *settings), entry, backend)
    assert outcome.step == 6
    losses = [
        [
            json.loads(line)["action_loss"]
            for line in (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()
        ]
        for name in ("straight", "tiny")
    ]
    assert losses[0] == losses[1], "resuming repeats what would have followed"
    assert outcome.loss == straight.loss
    assert np.mean(losses[0][3:]) < np.mean(losses[0][:3])

    config = make("train.max_steps=6", *settings)
    report = evaluate_checkpoint(config, entry, backend, outcome.checkpoint)
    errors = report.robots["new_embodiment"]
    assert errors.steps == 20
    assert list(errors.names) == ["x", "y", "z", "gripper"]
    assert np.isfinite(errors.mae).all()

    from vla_train.checkpoint.load import load_model as load_trained

    trained = load_trained(config, entry, backend, outcome.checkpoint)
    statistics = json.loads((tmp_path / "runs" / "tiny" / "dataset_statistics.json").read_text())
    files = entry.call("export_checkpoint")(trained, tmp_path / "runs" / "tiny", tmp_path / "out", statistics)
    assert {path.name for path in files} >= {"config.json", "model.safetensors", "statistics.json", "tokenizer.json"}
    policy = GrootPolicy.load(tmp_path / "out", "NEW_EMBODIMENT", backend, dtype="fp32")
    again = policy.model.state_dict()
    assert all(torch.equal(value, again[key]) for key, value in trained.full_state_dict().items())
    video = np.zeros((1, 2, 64, 64, 3), np.uint8)
    observation = {
        "video": {"primary_image": video, "wrist_image": video},
        "state": {key: np.zeros((1, 1, 1), np.float32) for key in (*POSE, "gripper")},
        "language": {"annotation.human.action.task_description": [["go"]]},
    }
    actions, _ = policy.get_action(observation, {"seed": 0})
    assert {key: value.shape for key, value in actions.items()} == dict.fromkeys((*POSE, "gripper"), (1, 8, 1))

    from vla_train.serve.worker import load_policy

    served = load_policy(config, entry, backend, tmp_path / "runs" / "tiny", outcome.checkpoint)
    found, _ = served({"observation": observation, "options": {"seed": 0}})
    for key, value in actions.items():
        np.testing.assert_array_equal(found[key], value)


def test_embodiment_nobody_described_uses_the_whole_set(make, backend):
    dataset = build_dataset(make("model.modality_config=null", "model.action_steps=4"), backend.video_ctx)
    sample = dataset[0]
    assert sample["action_mask"].sum() == 4 * 7
    assert dataset.action_names("new_embodiment") == ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]


def test_larger_sets_are_drawn_more_often(make, backend, tmp_path):
    copy = tmp_path / "few"
    shutil.copytree(SETS / "tiny_libero", copy)
    listed = (copy / "meta" / "episodes.jsonl").read_text().splitlines()[:1]
    (copy / "meta" / "episodes.jsonl").write_text("\n".join(listed) + "\n")
    both = f"data.datasets=[{{path: {SETS / 'tiny_libero'}, weight: 2}}, {{path: {copy}}}]"
    for exponent in (0, 1, 2):
        made = make(
            both, f"model.sampling.size_exponent={exponent}", "data.check=off", "data.skip_missing_episodes=true"
        )
        trained = build_dataset(made, backend.video_ctx)
        counts = [len(shards) for shards in trained.shards]
        assert counts[0] > counts[1]
        assert trained.stream.weights == [2.0 * counts[0] ** exponent, 1.0 * counts[1] ** exponent]


def test_statistics_of_the_checkpoint_may_win(make, backend):
    for choice, differ in (("dataset", True), ("checkpoint", False)):
        made = make(
            f"model.statistics={choice}", "model.modality_config=null", "model.embodiment_tag=simpler_env_widowx"
        )
        from vla_groot.build import build_processor

        old = build_processor(made.model).statistics["simpler_env_widowx"]["action"]["x"]["q01"]
        made.model.modality_config = None
        with pytest.raises(DataError, match="image_0"):  # its views have other names here
            build_dataset(made, backend.video_ctx)
        config = {"simpler_env_widowx": MODALITY["new_embodiment"]}
        path = Path(made.run.root).parent / "widowx.yaml"
        path.write_text(yaml.safe_dump(config))
        made.model.modality_config = str(path)
        made.model.processor.use_relative_action = False
        new = build_dataset(made, backend.video_ctx).processor.statistics["simpler_env_widowx"]["action"]["x"]["q01"]
        assert (old != new) == differ


class TestErrors:
    def test_data(self, make, backend):
        with pytest.raises(EmbodimentError, match="did you mean 'new_embodiment'"):
            build_dataset(make("model.embodiment_tag=new_embodyment"), backend.video_ctx)
        with pytest.raises(DataError, match="no episode is as long"):
            build_dataset(make("model.modality_config=null", "model.action_steps=21"), backend.video_ctx)

    def test_described_tag_without_a_slot(self, make, backend, tmp_path):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"new_robot": MODALITY["new_embodiment"]}))
        with pytest.raises(EmbodimentError, match="no embodiment tag 'new_robot'"):
            build_dataset(
                make(f"model.modality_config={tmp_path / 'mine.yaml'}", "model.embodiment_tag=new_robot"),
                backend.video_ctx,
            )

    def test_damaged_files_are_found_before_training(self, make, backend, tmp_path):
        """The quick check of the data runs for training, not for evaluation, and can be switched off."""
        copy = tmp_path / "damaged"
        shutil.copytree(SETS / "tiny_libero", copy)
        video = max(copy.glob("videos/*/*/*.mp4"))
        video.write_bytes(video.read_bytes()[:200])
        damaged = f"data.datasets=[{{path: {copy}}}]"
        with pytest.raises(DataError, match="(?s)error.* in the data of this run.*" + re.escape(video.name)):
            build_dataset(make(damaged), backend.video_ctx)
        assert len(build_dataset(make(damaged, "data.check=off"), backend.video_ctx))
        assert len(build_dataset(make(damaged, "data.holdout_episodes=1"), backend.video_ctx, "eval"))

    def test_config(self, make, backend):
        made = make()
        made.model.base_model = ""
        with pytest.raises(ConfigError, match="base_model"):
            build_dataset(made, backend.video_ctx)


def test_gradient_checkpointing_changes_no_gradient(make, backend, tensors):
    from vla_groot.build import build
    from vla_train.nn import ReplayDraws

    from .conftest import part

    recorded = tensors("full_loss")
    batch = {**part(recorded, "in."), "pixel_values": tensors("processor_batch")["batch.pixel_values"]}
    norms = []
    for setting in (False, True):
        model = build(make(f"model.gradient_checkpointing={setting}", "model.tune_llm=true"), backend).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model.config.state_dropout_prob = 0.0
        model.draws = ReplayDraws.from_tensors(recorded)
        model(batch)["action_loss"].backward()
        norms.append([p.grad.norm().item() for p in model.parameters() if p.grad is not None])
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)


def test_build_equals_load(make, backend):
    from vla_groot.build import build

    built, loaded = build(make(), backend), load_model(DATA / "checkpoint", backend)
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in built.state_dict().items())
    assert built.config.state_dropout_prob == 0.2
