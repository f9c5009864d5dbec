"""Intervals, the paired test, and what is written."""

from __future__ import annotations

import json

import pytest

from vla_train.closed_loop.rollout import EpisodeResult
from vla_train.closed_loop.success import ClosedLoopReport, mcnemar, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_as_published(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_wilson_interval_is_symmetric_and_needs_trials():
    low, high = wilson(17, 20)
    assert wilson(3, 20) == pytest.approx((1 - high, 1 - low))
    assert wilson(20, 20)[1] == 1.0
    with pytest.raises(ValueError, match="at least one trial"):
        wilson(0, 0)


def test_mcnemar_counts_only_pairs_that_differ():
    assert mcnemar([True] * 6, [False] * 6) == 2 / 2**6
    assert mcnemar([True] * 6 + [False] * 9, [False] * 6 + [False] * 9) == 2 / 2**6
    assert mcnemar([True, False], [False, True]) == 1.0
    assert mcnemar([True], [True]) == 1.0
    # 1 loss, 7 wins: (C(8, 0) + C(8, 1)) / 2^8, both tails.
    assert mcnemar([True] * 7 + [False], [False] * 7 + [True]) == 2 * 9 / 256


def test_table_and_json(tmp_path):
    model = [EpisodeResult(seed, True, 60 + seed, f"{seed}.mp4") for seed in range(4)]
    blind = [EpisodeResult(seed, False, 150) for seed in range(4)]
    report = ClosedLoopReport("slider:right", {"model": model, "black images": blind})
    lines = report.table().splitlines()
    assert "4 episodes (seeds 0 to 3)" in lines[0]
    assert lines[2].split() == ["model", "4", "of", "4", "100%", "51%", "to", "100%", "62"]
    assert lines[3].split() == ["black", "images", "0", "of", "4", "0%", "0%", "to", "49%", "-"]
    assert "p = 0.12" in lines[4]
    report.write_json(tmp_path / "report.json", checkpoint="step_7")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["checkpoint"] == "step_7"
    assert written["p_values"] == {"black images": 0.125}
    assert written["policies"]["black images"]["mean_steps"] is None
    assert written["policies"]["model"]["results"][2] == {"seed": 2, "success": True, "steps": 62, "video": "2.mp4"}
