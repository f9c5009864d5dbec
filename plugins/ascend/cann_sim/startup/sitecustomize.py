"""Python imports this in every process of a simulation, as PYTHONPATH names this folder first."""

import importlib.machinery
import importlib.util
import os
import sys


def _next_sitecustomize() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_next_sitecustomize()
if "CANN_SIM_SESSION" in os.environ:
    from vla_backend_ascend.cann_sim.activation import hook_import

    hook_import()
