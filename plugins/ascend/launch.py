"""Launching on NPUs: the environment, the import order, the patches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vla_backend import ConfigIssue, PatchReport, hookimpl
from vla_backend.errors import BackendUnavailable
from vla_backend_ascend import config_checks, environment, hardware, runtime


@hookimpl
def visible_devices_env() -> str:
    """CANN's runtime numbers the devices that this variable leaves."""
    return hardware.MASK


@hookimpl
def env_defaults(config: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """One timeout for HCCL, memory segments that can grow, two-level task queue; see `environment.py` for each."""
    return environment.defaults(config, env)


@hookimpl
def check_config(config: Mapping[str, Any], env: Mapping[str, str]) -> list[ConfigIssue]:
    """What costs hours on an NPU before it fails; see `config_checks.py` for each."""
    return config_checks.issues(config, env)


#: Why the stack did not load. torch keeps what a failed import of torch_npu registered, so that another attempt ends in
#: "Two accelerators cannot be used at the same time: npu and npu" instead of the cause.
_failed: list[BackendUnavailable] = []


@hookimpl
def load_stack() -> tuple[str, ...]:
    """torch first, then torch_npu, each once; torch_npu's stand-in for CUDA (`transfer_to_npu`) never."""
    if _failed:
        raise _failed[0]
    # Also in a process that no launcher prepared, and in the data workers that it will start.
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    try:
        import torch
        import torch_npu
    except Exception as error:
        # torch_npu raises bare exceptions of several kinds.
        explanation = runtime.translate_error(error)
        remedy = explanation.remedy or "compare torch and torch_npu versions, and source the set_env.sh of CANN"
        failure = BackendUnavailable(
            "Backend 'ascend' cannot import torch_npu.",
            why=f"{type(error).__name__}: {error}" + (f" ({explanation.why})" if explanation.known else ""),
            fix=f"{remedy.removesuffix('.')}; then start a new process",
        )
        failure.chinese = explanation.chinese
        _failed.append(failure)
        raise failure from error
    return (f"torch {torch.__version__}", f"torch_npu {torch_npu.__version__}")


@hookimpl
def apply_patches() -> tuple[PatchReport, ...]:
    """Libraries that take another device for granted; each patch carries the versions it is for."""
    # Reading other libraries' code takes modules that merely looking at this backend should not load.
    from vla_backend_ascend import patches

    return patches.apply()
