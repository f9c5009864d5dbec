"""Errors of CUDA and NCCL in plain words; the rest of the runtime is torch's device-neutral API."""

from __future__ import annotations

from vla_backend import Explanation, hookimpl
from vla_backend.explain import HOST, explain
from vla_backend_cuda.errors_table import CUDA


@hookimpl
def translate_error(error: BaseException) -> Explanation:
    """Errors of CUDA, cuBLAS, cuDNN and NCCL, then what goes wrong beside any chip."""
    return explain(error, (*CUDA, *HOST))
