"""A description of the contract that can be kept in a file and compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import vla_backend
from vla_backend import types
from vla_backend.activation import new_manager
from vla_backend.hookspecs import SPECS


def describe() -> dict[str, Any]:
    """Hooks with phase, answer, arguments; answer types with fields and whether they have a default; public names."""
    manager = new_manager()
    return {
        "hooks": {
            name: {
                "phase": str(spec.phase),
                "returns": spec.returns
                if spec.returns is None or isinstance(spec.returns, str)
                else spec.returns.__name__,
                "required": spec.required,
                "arguments": list(getattr(manager.hook, name).spec.argnames),
            }
            for name, spec in SPECS.items()
        },
        "types": {
            name: {field.name: _optional(field) for field in dataclasses.fields(value)}
            for name, value in vars(types).items()
            if isinstance(value, type) and dataclasses.is_dataclass(value)
        },
        "names": sorted(vla_backend.__all__),
    }


def _optional(field: dataclasses.Field) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
