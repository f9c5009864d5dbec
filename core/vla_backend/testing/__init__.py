"""A pytest plugin for the test suites of models: the same tests on every backend, and a strict mode.

In the `conftest.py` at the root of a test suite:

    pytest_plugins = ["vla_backend.testing"]

`pytest --vla-backend cpu,ascend-sim` then runs every test that takes the fixture `backend` once per backend; a name
with "-sim" runs on the simulator of that name (the whole session is started again inside it). `strict_mode` finds what
works on the chip at hand only. Fixtures that need more than the contract come from installed distributions, as entry
points of the group `vla_backend.testing`; docs/models.md lists them. Importing this module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import pytest

from vla_backend.errors import BackendError
from vla_backend.testing.opened import Opened, simulate
from vla_backend.testing.strict import StrictError, strict

if TYPE_CHECKING:
    from vla_backend.backend import Backend

__all__ = ["StrictError"]

GROUP: Final = "vla_backend.testing"
OPTION: Final = "--vla-backend"
_OPENED: Final = pytest.StashKey[Opened]()

#: pytest loads these with this plugin.
pytest_plugins = sorted({entry.value for entry in metadata.entry_points(group=GROUP)})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("vla", "vla-backend").addoption(
        OPTION,
        default="cpu",
        metavar="NAME,...",
        help="backends that tests with the fixture 'backend' run on, NAME-sim for a simulated one (default: cpu)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Start pytest again inside a simulator if one is asked for."""
    try:
        return simulate(_names(config), [str(argument) for argument in config.invocation_params.args])
    except BackendError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OPENED] = Opened(_names(config))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", _names(metafunc.config), indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """A backend of `--vla-backend`, device-ready, as rank 0.

    A backend that cannot run here is an error: it was asked for by name.
    """
    return request.config.stash[_OPENED].backend(request.param)


@pytest.fixture
def strict_mode(request: pytest.FixtureRequest, backend: Backend) -> Callable[..., AbstractContextManager[None]]:
    """`with strict_mode(model, precision="bf16"):` around code that runs `model` on `backend`.

    Runs the block under the backend's autocast and fails it with a `StrictError` that lists every place where

    * the package of the model names a device, in its source or in a call ("xpu:0", `.cuda()`, `torch.npu` ...),
    * memory is pinned although the backend says it cannot be (`pin_memory_ok`),
    * arithmetic inside `backend.fp32_region()` is done in bfloat16 or float16.
    """
    observer = request.config.stash[_OPENED].observers[backend.name]

    def start(model: Any, precision: str = "bf16") -> AbstractContextManager[None]:
        return strict(model, backend, observer, precision)

    return start


def _names(config: pytest.Config) -> list[str]:
    names = [name.strip() for name in str(config.getoption(OPTION)).split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise pytest.UsageError(f"{OPTION}={config.getoption(OPTION)} is no list of different names")
    return names
