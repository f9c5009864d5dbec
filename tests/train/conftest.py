from __future__ import annotations

import pytest
import torch

from vla_backend import Backend, activate


@pytest.fixture(scope="session")
def _active() -> Backend:
    torch.set_num_threads(1)
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


@pytest.fixture
def backend(_active) -> Backend:
    return _active
