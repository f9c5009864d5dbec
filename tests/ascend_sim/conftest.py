"""Everything here runs on the simulated CANN: `make test-ascend` starts pytest inside a simulation of two NPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON_PATH = (str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session", autouse=True)
def _simulated() -> None:
    from vla_backend_ascend.cann_sim import simulated

    assert simulated(), "these tests run inside the simulation: make test-ascend"


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def simulate(tmp_path: Path) -> Run:
    """Run a program in a simulation of its own: simulate("script.py", "arg", options=[...], processes=2, env={...}).

    With simulated=False the program runs where torch_npu is installed but there is no CANN.
    """
    return _runner(tmp_path)


@pytest.fixture(scope="session")
def simulate_in() -> Callable[[Path], Run]:
    """`simulate` for a folder of one's own: simulate_in(folder)("script.py", ...)."""
    return _runner


def _runner(folder: Path) -> Run:
    def run(
        script: str,
        *arguments: str,
        options: tuple[str, ...] = (),
        processes: int = 0,
        env: dict[str, str] | None = None,
        timeout: float = 200,
        simulated: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        program = (
            [str(HERE / "programs" / script), *arguments] if script.endswith(".py") else ["-c", script, *arguments]
        )
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--rdzv_backend", "c10d"]
        launcher += ["--rdzv_endpoint", "localhost:0"]
        command = [sys.executable, "-m", "vla_backend_ascend.cann_sim", *options, "--"] if simulated else []
        command += [sys.executable, *launcher, *program] if processes else [sys.executable, *program]
        inherited = dict(os.environ) if simulated else _without_cann()
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=folder,
            env={**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(PYTHON_PATH), **(env or {})},
        )

    return run


def _without_cann() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CANN_SIM_", "ASCEND_"))}
    libraries = kept.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    kept["LD_LIBRARY_PATH"] = os.pathsep.join(path for path in libraries if "cann_sim" not in path)
    return kept
