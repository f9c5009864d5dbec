"""Fixtures of the engine for the test suites of models; pytest loads them with `vla_backend.testing`.

They are found by the entry point group `vla_backend.testing`, so that the contract knows nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vla_train.testing.draws import RecordedDraws


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`tiny_weights("cosmos_predict2_5")`: a folder of small random weights in a published model's real format.

    The formats are those that installed models offer in `ModelEntry.tiny`; each is written once per session.
    """
    from vla_train.testing.weights import write

    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp("tiny") / name
            write(name, folder)
            made[name] = folder
        return made[name]

    return get


@pytest.fixture(scope="session")
def tiny_cosmos(tiny_weights: Callable[[str], Path]) -> Path:
    """A Cosmos-Predict2.5 pipeline in the format of diffusers: video transformer, VAE, text encoder, tokenizer."""
    return tiny_weights("cosmos_predict2_5")


@pytest.fixture(scope="session")
def tiny_qwen3_vl(tiny_weights: Callable[[str], Path]) -> Path:
    """A Qwen3-VL model in the format of transformers: weights, tokenizer and image preprocessor."""
    return tiny_weights("qwen3_vl")


@pytest.fixture(scope="session")
def tiny_lerobot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LeRobot v2.1 dataset: 4 episodes of 24 steps, one camera of 64 x 64, state of 3, action of 3 dimensions.

    A disc is moved to the middle of the picture, so there is something to learn. The folder's parent is `data.root`.
    """
    from vla_train.testing.lerobot import write_tiny

    return write_tiny(tmp_path_factory.mktemp("lerobot") / "move_to_the_middle")


@pytest.fixture
def recorded_draws() -> Iterator[RecordedDraws]:
    """Record the random numbers of a model and replay them, on this backend or another; see `RecordedDraws`.

    The test fails if it replays a recording without using it up.
    """
    from vla_train.testing.draws import RecordedDraws

    draws = RecordedDraws()
    yield draws
    draws.check_used_up()


def pytest_report_header(config: Any) -> str:
    return "vla-backend: fixtures backend, strict_mode, tiny_weights, tiny_lerobot, recorded_draws"
