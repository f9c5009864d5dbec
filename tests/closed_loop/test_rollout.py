"""Episodes with an environment and policies that are known exactly."""

from __future__ import annotations

import av
import numpy as np
import pytest
import torch

from tests.closed_loop.slider import Slider
from vla_train.closed_loop.rollout import run_episodes
from vla_train.closed_loop.video import write_video


class Chunks:
    """Moves right by `stride` cm a step, `length` steps a chunk, unless the picture is black."""

    def __init__(self, length=3, stride=1.0):
        self.length, self.stride = length, stride
        self.asked, self.noise = [], []

    def __call__(self, seen, generator):
        self.asked.append(len(seen))
        self.noise.append(float(torch.rand(1, generator=generator)))
        move = self.stride if seen[-1].video["top"].any() else -self.stride
        return [{"eef_delta": np.array([move, 0.0, 0.0]), "gripper": np.ones(1)}] * self.length


def run(policy, seeds, environment=None, **options):
    return run_episodes(policy, environment or Slider(), seeds, name="model", progress=False, **options)


def test_episodes_end_when_solved_or_after_the_last_step():
    environment = Slider()
    results = run(Chunks(), [0, 4, 20], environment)
    assert environment.seeds == [0, 4, 20]
    assert [(r.seed, r.success, r.steps) for r in results] == [(0, True, 1), (4, True, 5), (20, False, 12)]


def test_a_chunk_is_used_up_before_the_next_is_asked_for():
    whole, part, longer = Chunks(), Chunks(), Chunks()
    run(whole, [6])
    run(part, [6], execute=2)
    run(longer, [6], execute=5)
    assert whole.asked == [1, 4, 7]
    assert part.asked == [1, 3, 5, 7]
    assert longer.asked == [1, 4, 7]


def test_the_blind_policy_sees_black_and_the_same_noise():
    sighted, blind = Chunks(), Chunks()
    assert run(sighted, [3])[0].success
    assert not run(blind, [3], blind=True)[0].success
    assert blind.noise[:2] == sighted.noise[:2]


def test_noise_depends_on_seed_episode_and_prediction():
    first, again, other = Chunks(), Chunks(), Chunks()
    run(first, [5, 6])
    run(again, [6])
    run(other, [6], noise_seed=1)
    assert len(set(first.noise)) == len(first.noise) == 5
    assert first.noise[2:] == again.noise
    assert not set(other.noise) & set(first.noise)


def test_videos_show_every_step_and_say_how_it_ended(tmp_path):
    results = run(Chunks(), [2, 20], videos=tmp_path / "videos")
    assert [r.video for r in results] == ["model_002_solved.mp4", "model_020_failed.mp4"]
    with av.open(str(tmp_path / "videos" / results[0].video)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 3 + 1
    assert frames[0].shape == (288, 288, 3)
    assert frames[0][:, :85].mean() > 240 > 15 > frames[0][:, 95:].mean()


@pytest.mark.parametrize("shape", [(97, 31), (480, 640), (16, 400)])
def test_videos_of_any_size(shape, tmp_path):
    write_video(tmp_path / "a.mp4", [np.full((*shape, 3), 128, np.uint8)] * 3, fps=10)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 10
        assert stream.width / stream.height == pytest.approx(shape[1] / shape[0], rel=0.05)
        assert len(list(container.decode(video=0))) == 3
