"""Errors of CANN, HCCL and torch_npu in plain words; the rest of the runtime is torch's device-neutral API."""

from __future__ import annotations

from vla_backend import Explanation, hookimpl
from vla_backend.explain import HOST, explain
from vla_backend_ascend.errors_table import ASCEND


@hookimpl
def translate_error(error: BaseException) -> Explanation:
    """Codes of AscendCL, HCCL and CANN's compilers, then what goes wrong beside any chip."""
    return explain(error, (*ASCEND, *HOST))
