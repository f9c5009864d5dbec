"""Success rates with their uncertainty, and the table of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vla_train.checkpoint.layout import write_json
from vla_train.closed_loop.rollout import EpisodeResult

# 97.5 % quantile of the standard normal.
Z = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % confidence interval of a success rate.

    Wilson's score interval (J. Am. Stat. Assoc. 22, 1927): it keeps to [0, 1] and does not shrink to nothing when all
    or none of a few trials succeed.
    """
    if trials < 1:
        raise ValueError("a success rate needs at least one trial")
    rate, square = successes / trials, Z * Z / trials
    centre = (rate + square / 2) / (1 + square)
    half = Z / (1 + square) * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Two-sided p-value of "both policies are equally good", from pairs of episodes with the same seed.

    McNemar's exact test: of the pairs that came out differently, each policy should have won half.
    """
    wins = sum(a and not b for a, b in zip(first, second, strict=True))
    losses = sum(b and not a for a, b in zip(first, second, strict=True))
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n
    return min(1.0, 2 * tail)


@dataclass(frozen=True)
class ClosedLoopReport:
    """Result of an evaluation: episodes by policy, the model's first, all with the same seeds."""

    environment: str
    policies: Mapping[str, Sequence[EpisodeResult]]

    def summary(self) -> dict[str, Any]:
        """Per policy: successes, episodes, rate, 95 % interval, mean steps of the solved ones."""
        found = {}
        for name, episodes in self.policies.items():
            solved = [episode for episode in episodes if episode.success]
            low, high = wilson(len(solved), len(episodes))
            found[name] = {
                "successes": len(solved),
                "episodes": len(episodes),
                "rate": len(solved) / len(episodes),
                "interval": [low, high],
                "mean_steps": sum(e.steps for e in solved) / len(solved) if solved else None,
            }
        return found

    def p_values(self) -> dict[str, float]:
        """`mcnemar` of the first policy against every other."""
        (_, first), *others = self.policies.items()
        return {name: mcnemar([e.success for e in first], [e.success for e in other]) for name, other in others}

    def table(self) -> str:
        """Plain text, one line per policy."""
        episodes = next(iter(self.policies.values()))
        seeds = f"{episodes[0].seed} to {episodes[-1].seed}"
        width = max(len(name) for name in [*self.policies, "policy"])
        lines = [f"{self.environment}: {len(episodes)} episodes (seeds {seeds}), success with 95 % interval"]
        lines += [f"  {'policy':<{width}}  {'solved':>9}  {'rate':>5}  {'interval':>13}  {'steps':>6}"]
        for name, row in self.summary().items():
            solved = f"{row['successes']} of {row['episodes']}"
            interval = f"{row['interval'][0]:.0%} to {row['interval'][1]:.0%}"
            steps = "-" if row["mean_steps"] is None else f"{row['mean_steps']:.0f}"
            lines += [f"  {name:<{width}}  {solved:>9}  {row['rate']:>5.0%}  {interval:>13}  {steps:>6}"]
        for name, p in self.p_values().items():
            lines += [f"  as good as {name}? p = {p:.2g} (McNemar's exact test over the same episodes)"]
        return "\n".join(lines)

    def write_json(self, path: Path, **extra: Any) -> None:
        """Writes the report; `extra` entries come first."""
        policies = {
            name: {**row, "results": [asdict(episode) for episode in self.policies[name]]}
            for name, row in self.summary().items()
        }
        write_json(path, {**extra, "environment": self.environment, "p_values": self.p_values(), "policies": policies})
