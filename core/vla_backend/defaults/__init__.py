"""Generic answers on torch's device-neutral API, so that a plugin implements only what its chip does differently."""

from __future__ import annotations

from typing import Final

from vla_backend.defaults import data, identity, launch, precision, runtime, train

MODULES: Final = (identity, launch, precision, runtime, data, train)
