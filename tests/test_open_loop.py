"""Open-loop evaluation: the numbers, the ranks, what is written, and that training is left as it was."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vla_backend import BackendError, activate
from vla_train.action_errors import OpenLoopReport, RobotErrors, Trajectory
from vla_train.open_loop import evaluate_open_loop
from vla_train.plots import plot_report
from vla_train.train.world import World
from vla_train.trained_on import check_statistics

SHIPPED = Path(__file__).parents[1] / "examples" / "data" / "metaworld_button_press_topdown"
HORIZON = 4
MEAN = [1.0, 20.0, 5.0]


@pytest.fixture
def backend():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


@dataclass(frozen=True)
class Ref:
    name: str
    tag: str
    length: int


class Recordings:
    """Episodes of lengths that no chunk divides; normalised = raw / 10; the last dimension is constant."""

    statistics = {"robot": {"action": {"mean": MEAN}}}  # noqa: RUF012

    def __init__(self, lengths=(10, 7, 13)):
        rng = np.random.default_rng(0)
        self.raw = [np.stack([rng.normal(size=n), 20 + rng.normal(size=n), np.full(n, 5.0)], 1) for n in lengths]

    def episodes(self):
        return [Ref(f"set/{i}", "robot", len(raw)) for i, raw in enumerate(self.raw)]

    def episode_samples(self, ref, stride):
        raw = self.raw[int(ref.name.split("/")[1])]
        for step in range(0, ref.length, stride):
            chunk = raw[step : step + HORIZON]
            padded = np.concatenate([chunk, np.repeat(chunk[-1:], HORIZON - len(chunk), 0)])
            yield {"action": padded / 10, "step": step, "raw_action": chunk}

    def unnormalize_actions(self, actions, tag=None):
        return np.asarray(actions, dtype=np.float64)[..., :3] * 10

    def action_names(self, tag):
        return ["x", "y", "grip"]


class Policy(nn.Module):
    """Recorded action + `offset` + `noise` times a normal draw; counts what it is asked."""

    def __init__(self, offset=(0.0, 0.0, 0.0), noise=0.0, constant=None):
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.offset, self.noise, self.constant = torch.tensor(offset), noise, constant
        self.calls: list[int] = []

    def predict_action(self, batch, generator=None):
        assert not self.training
        assert not torch.is_grad_enabled()
        self.calls.append(len(batch["action"]))
        action = batch["action"] + self.offset / 10
        if self.constant is not None:
            action = torch.tensor(self.constant).expand_as(action) / 10
        return action + self.noise * torch.randn(action.shape, generator=generator)


def collate(samples):
    return {"action": torch.from_numpy(np.stack([s["action"] for s in samples])).float()}


def evaluate(model, backend, dataset=None, **kwargs):
    kwargs = {"collate": collate, "horizon": HORIZON, "progress": False, **kwargs}
    return evaluate_open_loop(model, dataset or Recordings(), backend, **kwargs)


def test_errors_are_those_of_the_prediction_in_robot_units(backend):
    errors = evaluate(Policy(offset=(0.5, -2.0, 0.25)), backend).robots["robot"]
    assert errors.steps == 10 + 7 + 13
    np.testing.assert_allclose(errors.mae, [0.5, 2.0, 0.25], rtol=1e-4)
    np.testing.assert_allclose(errors.mse, [0.25, 4.0, 0.0625], rtol=1e-4)
    recorded = np.concatenate(Recordings().raw)
    np.testing.assert_allclose(errors.baseline_mae, np.abs(recorded - MEAN).mean(0))
    np.testing.assert_allclose(errors.baseline_mse, np.square(recorded - MEAN).mean(0))
    assert [len(t.recorded) for t in errors.trajectories] == [10, 7, 13]
    np.testing.assert_array_equal(errors.trajectories[2].recorded, Recordings().raw[2])


def test_mean_action_scores_one_and_the_constant_dimension_does_not_count(backend):
    errors = evaluate(Policy(constant=MEAN), backend).robots["robot"]
    np.testing.assert_allclose(errors.ratios[:2], 1.0, rtol=1e-5)
    assert np.isnan(errors.ratios[2])
    assert errors.normalised_error == pytest.approx(1.0, rel=1e-5)
    assert errors.overall_ratio == pytest.approx(1.0, rel=1e-5)


def test_normalised_error_weighs_dimensions_alike():
    errors = RobotErrors(["mm", "m"], 1, np.array([100.0, 0.1]), np.zeros(2), np.array([400.0, 1.0]), np.zeros(2))
    assert errors.normalised_error == pytest.approx((0.25 + 0.1) / 2)
    assert errors.overall_ratio == pytest.approx(100.1 / 401)


def test_intervals_come_from_whole_episodes(backend):
    """Episodes that are alike inside and differ among each other: the interval spans the episodes, not the steps."""
    errors = evaluate(Policy(offset=(0.5, 0.0, 0.0)), backend).robots["robot"]
    low, high = errors.ratio_intervals[0]
    assert low < errors.ratios[0] < high
    assert errors.ratio_intervals[1] == pytest.approx((0, 0), abs=1e-5)
    assert errors.ratio_intervals[2] is None  # constant
    alone = evaluate(Policy(offset=(0.5, 0.0, 0.0)), backend, episodes=1).robots["robot"]
    assert alone.ratio_intervals == [None] * 3
    assert alone.normalised_error_interval is None
    assert evaluate(Policy(), backend, episodes=1).table().count("interval") == 1

    ones = np.ones((10, 1))
    trajectories = [Trajectory(f"set/{i}", 4, ones * (i % 2), ones * 0) for i in range(40)]
    mean = RobotErrors(["x"], 400, *[np.array([v]) for v in (0.5, 0.5, 1.0, 1.0)], trajectories, np.array([1.0]))
    low, high = mean.normalised_error_interval
    # 40 coins: 0.5 +- 1.96 * 0.5 / sqrt(40); 400 independent steps would give a third of that.
    assert (low, high) == pytest.approx((0.345, 0.655), abs=0.03)


def test_the_mean_of_several_robots_has_an_interval():
    def robot(count):
        ones = np.ones((5, 1))
        trajectories = [Trajectory(f"set/{i}", 4, ones * (i % 2), ones * 0) for i in range(count)]
        return RobotErrors(["x"], 5 * count, *[np.array([v]) for v in (0.5, 0.5, 1.0, 1.0)], trajectories, np.ones(1))

    one, two = (OpenLoopReport(robots) for robots in ({"a": robot(20)}, {"a": robot(20), "b": robot(20)}))
    assert two.normalised_error == one.normalised_error == 0.5
    assert np.ptp(two.normalised_error_interval) < np.ptp(one.normalised_error_interval)
    assert OpenLoopReport({"a": robot(20), "b": robot(1)}).normalised_error_interval is None


def test_batches_stay_within_the_size_and_cover_every_chunk_once(backend):
    model = Policy()
    evaluate(model, backend, batch_size=2)
    assert model.calls == [2, 1, 2, 2, 2]  # 3, 2 and 4 chunks
    model = Policy()
    assert len(evaluate(model, backend, episodes=2).robots["robot"].trajectories) == 2
    assert model.calls == [3, 2]


def test_noise_depends_on_the_seed_alone_and_training_is_left_as_it_was(backend):
    model = Policy(noise=1.0).train()
    torch.manual_seed(1)
    first = evaluate(model, backend, seed=3)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again, other = evaluate(model, backend, seed=3), evaluate(model, backend, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert (first.robots["robot"].mae == again.robots["robot"].mae).all()
    assert (first.robots["robot"].mae != other.robots["robot"].mae).any()
    assert model.training
    assert model.dropout.training


class Threads:
    """Ranks as threads of one process: `sum` waits for all of them."""

    def __init__(self, size):
        self.barrier, self.parts = threading.Barrier(size, timeout=30), [None] * size

    def world(self, rank):
        shared = self

        class Rank(World):
            def sum(self, tensor):
                shared.parts[rank] = tensor
                shared.barrier.wait()
                total = torch.stack(shared.parts).sum(0)
                shared.barrier.wait()
                return total

        return Rank(rank, rank, len(self.parts), torch.device("cpu"))


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_share_the_episodes_and_agree_with_one_process(backend, size):
    alone = evaluate(Policy(noise=0.1), backend, batch_size=2)
    threads, reports, models = Threads(size), [None] * size, [Policy(noise=0.1) for _ in range(size)]

    def rank(i):
        reports[i] = evaluate(models[i], backend, batch_size=2, world=threads.world(i))

    workers = [threading.Thread(target=rank, args=(i,)) for i in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # A forward pass is a collective under ZeRO-3: all ranks make the same number of them.
    assert {len(model.calls) for model in models} == {4 if size == 2 else 2}
    for report in reports:
        np.testing.assert_allclose(report.robots["robot"].mae, alone.robots["robot"].mae, rtol=1e-6)
        assert [t.name for t in report.robots["robot"].trajectories] == ["set/0", "set/1", "set/2"]


def test_no_held_out_episode_is_an_error(backend):
    with pytest.raises(ValueError, match="holdout_episodes"):
        evaluate(Policy(), backend, dataset=Recordings(lengths=()))


def test_json_table_and_pictures(backend, tmp_path):
    report = evaluate(Policy(offset=(0.5, 0.0, 0.0)), backend)
    report.write_json(tmp_path / "eval.json", checkpoint="step_7")
    written = json.loads((tmp_path / "eval.json").read_text())
    assert written["checkpoint"] == "step_7"
    assert written["normalised_error"] == pytest.approx(report.normalised_error)
    low, high = written["normalised_error_interval"]
    assert 0 < low <= report.normalised_error <= high < 1
    assert f"(95 % interval {low:.3f} to {high:.3f})" in report.table()
    assert written["split"] == "held-out"
    dimensions = {d["name"]: d for d in written["robots"]["robot"]["dimensions"]}
    assert dimensions["x"]["mae"] == pytest.approx(0.5, rel=1e-4)
    assert dimensions["grip"]["ratio"] is None
    assert [e["steps"] for e in written["robots"]["robot"]["episodes"]] == [10, 7, 13]
    assert "const." in report.table()
    assert f"{report.normalised_error:.3f}" in report.table()
    assert set(report.scalars()) == {"eval/normalised_error", "eval/mae", "eval/mse"}
    pictures = plot_report(report, tmp_path / "plots", "eval", episodes=2)
    assert [p.name for p in pictures] == ["eval_set_0.png", "eval_set_1.png"]
    assert all(p.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for p in pictures)


@pytest.mark.parametrize("dims", [1, 5, 17])
def test_pictures_of_any_number_of_dimensions(dims, tmp_path):
    path = np.linspace(0, 1, 9)[:, None].repeat(dims, 1)
    trajectory = Trajectory("set/0", 4, path, path + 0.1)
    ones = np.ones(dims)
    errors = RobotErrors([f"joint {i}" for i in range(dims)], 9, ones, ones, ones, ones, [trajectory])
    assert plot_report(OpenLoopReport({"robot": errors}), tmp_path, "eval")[0].stat().st_size > 5000


def test_whole_sets_can_be_evaluated(backend):
    from vla_dit4dit.config import DiT4DiTConfig
    from vla_dit4dit.data.dataset import build_dataset
    from vla_train.config.schema import Config
    from vla_train.data.config import DataConfig, DatasetConfig
    from vla_train.data.errors import DataError

    def episodes(split, holdout):
        data = DataConfig(datasets=[DatasetConfig(str(SHIPPED))], holdout_episodes=holdout, check="off")
        dataset = build_dataset(Config(model=DiT4DiTConfig(), data=data), backend.video_ctx, split)
        return [ref.episode.index for ref in dataset.episodes()], next(iter(dataset.statistics.values()))["action"][
            "mean"
        ]

    everything, mean = episodes("all", 3)
    training, same = episodes("train", 3)
    held_out, _ = episodes("eval", 3)
    assert everything == training + held_out == list(range(50))
    assert held_out == [47, 48, 49]
    assert mean == same  # of the training episodes, whatever is evaluated
    assert episodes("all", 0)[0] == everything
    with pytest.raises(DataError, match="--split all"):
        episodes("eval", 0)


def test_other_statistics_than_those_of_training_are_an_error(tmp_path):
    class Data:
        def __init__(self, tag="sawyer", mean=(0.1, 0.2), state=(1.0,)):
            self.statistics = {tag: {"action": {"mean": list(mean)}, "state": {"max": list(state)}, "n": 3}}

    check_statistics(tmp_path, Data())  # a folder without a record
    (tmp_path / "dataset_statistics.json").write_text(json.dumps(Data().statistics))
    check_statistics(tmp_path, Data(mean=(0.1000001, 0.2)))
    with pytest.raises(
        BackendError, match=r"(?s)other statistics.*action\.mean is \[0\.1, 0\.3\] now and \[0\.1, 0\.2\]"
    ):
        check_statistics(tmp_path, Data(mean=(0.1, 0.3)))
    with pytest.raises(BackendError, match=r"state\.max"):
        check_statistics(tmp_path, Data(state=(1.0, 2.0)))
    with pytest.raises(BackendError, match="not trained on 'panda'"):
        check_statistics(tmp_path, Data(tag="panda"))


def test_recorded_actions_survive_the_real_data_path(backend):
    """A policy that answers the normalised targets is right up to the rounding of float16."""
    from vla_dit4dit.config import DiT4DiTConfig
    from vla_dit4dit.data.batch import collate as collate_real
    from vla_dit4dit.data.dataset import build_dataset
    from vla_train.config.schema import Config
    from vla_train.data.config import DataConfig, DatasetConfig

    class Oracle(nn.Module):
        def predict_action(self, batch, generator=None):
            return batch["action"]

    data = DataConfig(datasets=[DatasetConfig(str(SHIPPED))], holdout_episodes=3, image_size=[32, 32])
    dataset = build_dataset(Config(model=DiT4DiTConfig(), data=data), backend.video_ctx, "eval")
    assert len(dataset[0]["action"]) == 8
    errors = next(iter(evaluate(Oracle(), backend, dataset, collate=collate_real, horizon=8).robots.values()))
    assert [t.name for t in errors.trajectories] == [f"{SHIPPED.name}/{i}" for i in (47, 48, 49)]
    assert errors.mae.max() < 5e-4
    assert errors.baseline_mae[:3].min() > 0.1
    assert np.isnan(errors.ratios).tolist() == [False, False, False, True]
