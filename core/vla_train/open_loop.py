"""Open-loop evaluation: predicted against recorded actions over whole episodes, in the robot's own units."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from tqdm import tqdm

from vla_backend import Backend
from vla_train.action_errors import OpenLoopReport, RobotErrors, Trajectory
from vla_train.train.world import World


class EpisodeRef(Protocol):
    """One held-out episode; `tag` names the statistics of its robot."""

    @property
    def name(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def length(self) -> int: ...


class EvalDataset(Protocol):
    """What the "eval" split of a model's dataset offers."""

    @property
    def statistics(self) -> Mapping[str, Any]:
        """`dataset_statistics.json`; `[tag]["action"]["mean"]` is the training mean in the robot's units."""

    def episodes(self) -> Sequence[Any]: ...
    def episode_samples(self, ref: Any, stride: int) -> Iterator[dict[str, Any]]:
        """Samples at steps 0, stride, ...; each with `step` and the recorded actions `raw_action` (n, D)."""

    def unnormalize_actions(self, actions: np.ndarray, tag: str | None = None) -> np.ndarray: ...


def evaluate_open_loop(
    model: Any,
    dataset: EvalDataset,
    backend: Backend,
    *,
    collate: Callable[[list[dict[str, Any]]], dict[str, Any]],
    horizon: int,
    dtype: torch.dtype = torch.float32,
    episodes: int = 0,
    batch_size: int = 16,
    seed: int = 0,
    world: World | None = None,
    progress: bool = True,
    split: str = "held-out",
) -> OpenLoopReport:
    """Predicts every chunk of every episode from its recorded observation.

    The prediction at step t covers steps t ... t + horizon - 1; the next one is made at t + horizon, so every step is
    predicted once. Several ranks share the episodes, and all get the same report. The noise depends on seed, episode
    and batch only, so the result does not depend on the number of ranks.

    Args:
        model: has `predict_action(batch, generator) -> (B, horizon, D)`, normalised.
        dataset: the "eval" split, or another.
        backend: device-ready.
        collate: samples to batch.
        horizon: steps of one prediction.
        dtype: autocast dtype.
        episodes: use the first so many episodes; 0 for all.
        batch_size: predictions per forward pass.
        seed: of the noise.
        world: the ranks; None for one process.
        progress: show a bar (main rank).
        split: what the report calls the episodes.

    Raises:
        ValueError: there is no held-out episode.
    """
    refs = list(dataset.episodes())[: episodes or None]
    if not refs:
        raise ValueError("there are no held-out episodes; set data.holdout_episodes to at least 1")
    rank, size = (world.rank, world.world_size) if world else (0, 1)
    counts = [math.ceil(math.ceil(ref.length / horizon) / batch_size) for ref in refs]
    # Under ZeRO-3 every forward pass is a collective, so every rank makes as many as the busiest one.
    passes = max(sum(counts[r::size]) for r in range(size))
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    hidden = not progress or rank > 0 or not sys.stderr.isatty()
    bar = tqdm(total=passes, desc="evaluating", unit="batch", disable=hidden)

    def predict(samples: list[dict[str, Any]], number: int, batch: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(_noise_seed(seed, number, batch))
        inputs = backend.to_device(collate(samples))
        with backend.autocast(dtype):
            actions = model.predict_action(inputs, generator=generator)
        bar.update()
        return backend.to_numpy(actions)

    with bar, backend.evaluating(model):
        for number in range(rank, len(refs), size):
            ref = refs[number]
            stream = iter(dataset.episode_samples(ref, horizon))
            predicted, recorded = [], []
            for batch in range(counts[number]):
                samples = list(islice(stream, batch_size))
                actions = predict(samples, number, batch)
                # Actions relative to the state need the samples to become absolute.
                decode = getattr(dataset, "decode_actions", None)
                actions = decode(actions, samples) if decode else dataset.unnormalize_actions(actions, ref.tag)
                for sample, chunk in zip(samples, actions, strict=True):
                    recorded.append(np.asarray(sample["raw_action"], dtype=np.float64))
                    predicted.append(chunk[: len(recorded[-1])])
            found[number] = (np.concatenate(predicted), np.concatenate(recorded))
        spare = passes - sum(counts[rank::size])
        if spare:
            samples = list(islice(dataset.episode_samples(refs[0], horizon), 1))
            for _ in range(spare):
                predict(samples, 0, 0)
    return _report(dataset, refs, _share(found, dataset, refs, world), horizon, split)


def _report(
    dataset: EvalDataset,
    refs: Sequence[Any],
    found: Mapping[int, tuple[np.ndarray, np.ndarray]],
    horizon: int,
    split: str,
) -> OpenLoopReport:
    robots = {}
    for tag in dict.fromkeys(ref.tag for ref in refs):
        trajectories = [Trajectory(ref.name, horizon, *found[i]) for i, ref in enumerate(refs) if ref.tag == tag]
        recorded = np.concatenate([t.recorded for t in trajectories])
        error = np.concatenate([t.predicted for t in trajectories]) - recorded
        baseline = np.asarray(dataset.statistics[tag]["action"]["mean"]) - recorded
        robots[tag] = RobotErrors(
            names=_names(dataset, tag, recorded.shape[1]),
            steps=len(recorded),
            mae=np.abs(error).mean(0),
            mse=np.square(error).mean(0),
            baseline_mae=np.abs(baseline).mean(0),
            baseline_mse=np.square(baseline).mean(0),
            trajectories=trajectories,
            mean_action=np.asarray(dataset.statistics[tag]["action"]["mean"], dtype=np.float64),
        )
    return OpenLoopReport(robots, split)


def _names(dataset: EvalDataset, tag: str, width: int) -> list[str]:
    named = getattr(dataset, "action_names", None)
    return list(named(tag)) if named else [f"action {i}" for i in range(width)]


def _share(
    found: dict[int, tuple[np.ndarray, np.ndarray]], dataset: EvalDataset, refs: Sequence[Any], world: World | None
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Every rank's episodes on every rank."""
    if world is None or world.world_size == 1:
        return found
    shapes = [(2, ref.length, len(dataset.statistics[ref.tag]["action"]["mean"])) for ref in refs]
    # float32: not every chip has float64. An episode is nonzero on one rank only, so the sum moves it unchanged.
    own = [np.stack(found[i]) if i in found else np.zeros(shape) for i, shape in enumerate(shapes)]
    flat = torch.from_numpy(np.concatenate([part.reshape(-1) for part in own]).astype(np.float32))
    values = world.sum(flat).cpu().numpy().astype(np.float64)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(values, ends[:-1])
    return {i: tuple(part.reshape(shape)) for i, (part, shape) in enumerate(zip(parts, shapes, strict=True))}


def _noise_seed(seed: int, episode: int, batch: int) -> int:
    return int(np.random.SeedSequence([seed, episode, batch]).generate_state(1, np.uint64)[0] >> 1)
