"""The example model on every backend: `pytest --vla-backend cpu,ascend-sim`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vla_backend import Backend
from vla_behaviour_cloning import entry
from vla_train.config import Config
from vla_train.train.run import run


@pytest.fixture
def batch(config: Config, backend: Backend) -> dict[str, Any]:
    """Four samples on the host."""
    dataset = entry.call("dataset")(config, backend.video_ctx, "train")
    return entry.call("collate")([dataset[index] for index in range(4)])


@pytest.fixture
def model(config: Config, backend: Backend) -> Any:
    torch.manual_seed(0)
    return entry.call("build")(config, backend)


def test_shapes(model: Any, batch: dict[str, Any], backend: Backend) -> None:
    model.to(backend.device)
    inputs = backend.to_device(batch)
    losses = model(inputs)
    assert set(losses) == {"action_loss"}
    assert losses["action_loss"].shape == ()
    actions = model.predict_action(inputs)
    assert actions.shape == (4, 4, 3)
    assert actions.dtype == torch.float32


def test_it_is_bound_to_no_chip(model: Any, batch: dict[str, Any], backend: Backend, strict_mode: Any) -> None:
    model.to(backend.device)
    inputs = backend.to_device(batch)
    with strict_mode(model):
        loss = model(inputs)["action_loss"]
    assert loss.dtype == torch.float32
    loss.backward()


def test_the_same_draws_give_the_same_loss_as_on_the_cpu(
    config: Config, model: Any, batch: dict[str, Any], backend: Backend, recorded_draws: Any
) -> None:
    recording = recorded_draws.record(model)
    expected = model(batch)["action_loss"]
    other = entry.call("build")(config, backend)
    other.load_state_dict(model.state_dict())
    other.to(backend.device)
    recorded_draws.replay(other, recording)
    loss = other(backend.to_device(batch))["action_loss"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_steps_beyond_the_episode_do_not_count(model: Any, batch: dict[str, Any], backend: Backend) -> None:
    model.to(backend.device)
    model.config.state_noise = 0.0
    batch["action_mask"][:, 2:] = False
    first = model(backend.to_device(batch))["action_loss"].item()
    batch["action"][:, 2:] = 1e3
    assert model(backend.to_device(batch))["action_loss"].item() == first
    assert model.loss_counts(batch) == {"action_loss": 4 * 2 * 3}


def test_the_picture_and_the_words_matter(model: Any, batch: dict[str, Any], backend: Backend) -> None:
    model.to(backend.device)

    def predicted(**changes: Any) -> torch.Tensor:
        return model.predict_action(backend.to_device({**batch, **changes})).to("cpu")

    plain = predicted()
    assert not torch.allclose(plain, predicted(images=batch["images"].flip(-1)))
    assert not torch.allclose(plain, predicted(words=batch["words"] + 1))
    padded = torch.cat([batch["words"], torch.full((4, 3), 7)], dim=1)
    mask = torch.cat([batch["word_mask"], torch.zeros(4, 3, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(plain, predicted(words=padded, word_mask=mask))


def test_it_trains_and_is_evaluated_by_the_engine(config: Config, batch: dict[str, Any], backend: Backend) -> None:
    config.train.eval_interval = 32
    config.model.state_noise = 0.0
    trained: list[Any] = []
    before: list[float] = []

    def loss() -> float:
        with torch.no_grad():
            return float(trained[0](backend.to_device(batch))["action_loss"])

    def prepared(parts: Any) -> None:
        trained.append(parts.model)
        before.append(loss())

    outcome = run(config, entry, backend, prepared=prepared)
    assert outcome.step == 32
    assert loss() < 0.6 * before[0]
    folder = Path(config.run.root) / config.run.id
    assert json.loads((folder / "decisions.json").read_text())["backend"] == backend.name
    assert list((folder / "plots").glob("eval_step_*.json"))
