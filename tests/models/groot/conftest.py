from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from vla_backend import activate

DATA = Path(__file__).parents[2] / "data" / "groot"


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def backend():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


@pytest.fixture(autouse=True)
def _in_data_folder(monkeypatch):
    """The backbone's path in the recorded configurations is relative."""
    monkeypatch.chdir(DATA)


@pytest.fixture(scope="session")
def tensors():
    return lambda name: load_file(DATA / f"{name}.safetensors")


@pytest.fixture(scope="session")
def facts():
    return lambda name: json.loads((DATA / f"{name}.json").read_text())


def part(recorded: Mapping[str, torch.Tensor], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in recorded.items() if key.startswith(prefix)}


def near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=0, check_dtype=False)
