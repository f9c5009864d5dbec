"""The hooks, six modules; a plugin's modules carry the same names."""

from __future__ import annotations

from typing import Final

from vla_backend.hookspecs import data, identity, launch, precision, runtime, train
from vla_backend.markers import Spec

GROUPS: Final = ("identity", "launch", "precision", "runtime", "data", "train")
MODULES: Final = (identity, launch, precision, runtime, data, train)

#: Phase and answer type of every hook, in the order of the modules.
SPECS: Final[dict[str, Spec]] = {
    name: value.vla_spec for module in MODULES for name, value in vars(module).items() if hasattr(value, "vla_spec")
}
