"""`vla sim ascend`: this simulation as a sub-command; the engine finds it by the entry point group `vla.simulators`."""

from __future__ import annotations

from vla_backend_ascend.cann_sim.__main__ import add_arguments, start

__all__ = ["add_arguments", "start"]
