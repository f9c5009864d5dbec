"""A package of this product's requirements that is not installed, told as that instead of as a failed import."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

from vla_backend import BackendError

DISTRIBUTION: Final = "vla-backend"
#: Distributions that are not called like what is imported.
_DISTRIBUTIONS: Final = {"zmq": "pyzmq", "yaml": "pyyaml"}


def missing_package(error: BaseException) -> BackendError | None:
    """What to install, if `error` is the import of a required package that is not there; else None.

    An import that fails otherwise (a module of a package that is there, a package nobody declared) is a mistake in code
    or versions, and its traceback says more.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    wanted = _DISTRIBUTIONS.get(error.name, error.name).lower().replace("_", "-")
    requirement = next((line for line in _requirements() if _name(line) == wanted), "")
    if not requirement:
        return None
    made = BackendError(
        f"The package '{wanted}' is not installed, which is needed here.",
        why=str(error),
        fix=f'pip install "{requirement.partition(";")[0].strip()}"; `vla doctor` lists everything that is missing',
    )
    made.__cause__ = error  # for VLA_DEBUG
    return made


def _requirements() -> list[str]:
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return []


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
