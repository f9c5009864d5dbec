"""Running episodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from vla_train.closed_loop.environments import Environment, Observation
from vla_train.closed_loop.policy import blinded
from vla_train.closed_loop.video import write_video

#: `(observations so far, generator of the noise) -> the next actions`.
Acting = Callable[[Sequence[Observation], torch.Generator], Sequence[Mapping[str, np.ndarray]]]


@dataclass(frozen=True)
class EpisodeResult:
    """One episode: its seed, whether the task was solved, and after how many control steps it ended."""

    seed: int
    success: bool
    steps: int
    video: str = ""


def run_episodes(
    policy: Acting,
    environment: Environment,
    seeds: Sequence[int],
    *,
    name: str,
    execute: int = 0,
    blind: bool = False,
    noise_seed: int = 0,
    videos: Path | None = None,
    progress: bool = True,
) -> list[EpisodeResult]:
    """Lets a policy act in one episode per seed.

    Args:
        policy: asked for a chunk of actions whenever the last one has been used up.
        environment: where it acts.
        seeds: of the task instances.
        name: of the policy, for the bar and the videos' names.
        execute: steps of every chunk that are applied before the next is asked for; 0 for all.
        blind: show it black pictures.
        noise_seed: of the model's noise, which depends on this, the episode's seed and the prediction's number only.
        videos: folder for one mp4 per episode; null for none.
        progress: show a bar.
    """
    results = []
    with tqdm(seeds, desc=name, unit="episode", disable=not progress or not sys.stderr.isatty()) as bar:
        for seed in bar:
            frames: list[np.ndarray] = []
            success, steps = _episode(policy, environment, seed, execute, blind, noise_seed, frames)
            video = ""
            if videos is not None:
                video = f"{name.replace(' ', '_')}_{seed:03d}_{'solved' if success else 'failed'}.mp4"
                write_video(videos / video, frames, environment.fps)
            results.append(EpisodeResult(seed, success, steps, video))
            bar.set_postfix(solved=f"{sum(r.success for r in results)}/{len(results)}")
    return results


def _episode(
    policy: Acting,
    environment: Environment,
    seed: int,
    execute: int,
    blind: bool,
    noise_seed: int,
    frames: list[np.ndarray],
) -> tuple[bool, int]:
    seen: list[Observation] = []
    pending: list[Mapping[str, np.ndarray]] = []
    observation, predictions = environment.reset(seed), 0
    for step in range(environment.max_steps):
        frames.append(_beside(observation))
        seen.append(blinded(observation) if blind else observation)
        if not pending:
            generator = torch.Generator().manual_seed(_seed(noise_seed, seed, predictions))
            pending = list(policy(seen, generator))[: execute or None]
            predictions += 1
        observation, solved = environment.step(pending.pop(0))
        if solved:
            frames.append(_beside(observation))
            return True, step + 1
    return False, environment.max_steps


def _beside(observation: Observation) -> np.ndarray:
    """All cameras' pictures in a row; cameras of other heights are cut or padded below."""
    pictures: list[Any] = list(observation.video.values())
    height = pictures[0].shape[0]
    return np.concatenate(
        [np.pad(p[:height], ((0, max(0, height - p.shape[0])), (0, 0), (0, 0))) for p in pictures], axis=1
    )


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
