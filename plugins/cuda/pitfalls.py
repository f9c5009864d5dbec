"""The error table of this backend, for the page of pitfalls."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError
from vla_backend_cuda.errors_table import CUDA

ERRORS: Final[tuple[KnownError, ...]] = CUDA
