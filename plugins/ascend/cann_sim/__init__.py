"""A simulated CANN: the unmodified torch_npu wheel runs on a machine without an NPU.

`python -m vla_backend_ascend.cann_sim [--devices N] [--memory GB] -- COMMAND` runs any program, children included, on
simulated NPUs. docs/ascend_simulation.md says what that proves and what not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from vla_backend_ascend.cann_sim.settings import Settings

__all__ = ["Settings", "simulated"]


def simulated(env: Mapping[str, str] | None = None) -> bool:
    """Whether this process runs on the simulated CANN; results that rest on it must say so."""
    return "CANN_SIM_SESSION" in (os.environ if env is None else env)
