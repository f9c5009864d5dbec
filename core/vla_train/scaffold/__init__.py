"""Writing the package of a new backend plugin from the files below `template/`; imports no torch."""

from __future__ import annotations

from vla_train.scaffold.names import Names, ScaffoldError
from vla_train.scaffold.write import write

__all__ = ["Names", "ScaffoldError", "write"]
