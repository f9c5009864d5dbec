"""`vla sim ascend`: this simulation as a sub-command; the engine finds it by the entry point group `vla.simulators`.

An entry of that group is named like the backend and is a module with

* `add_arguments(parser)`: the simulation's own options, and
* `start(options, command) -> int`: run `command`, children included, in the simulation; answers its exit code.
"""

from __future__ import annotations

from vla_backend_ascend.cann_sim.__main__ import add_arguments, start

__all__ = ["add_arguments", "start"]
