"""Launching on the CPU, also on machines and in environments made for other chips."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vla_backend import ConfigIssue, PatchReport, hookimpl
from vla_backend.installed import package_folder
from vla_backend.settings import setting
from vla_backend_cpu import machine

if TYPE_CHECKING:
    import torch


@hookimpl
def env_defaults() -> dict[str, str]:
    """Libraries look for an accelerator by themselves and would move the model there; hide all of them."""
    return {
        "DS_ACCELERATOR": "cpu",
        # Libraries look for an accelerator by themselves and would move the model there.
        "CUDA_VISIBLE_DEVICES": "",
        "ASCEND_RT_VISIBLE_DEVICES": "",
        # A vendor extension that is installed but has no driver would make `import torch` itself fail.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }


@hookimpl
def check_config(config: Mapping[str, Any]) -> list[ConfigIssue]:
    """What is slow or impossible on processors: fp16, emulated bf16, more processes than processors."""
    issues = []
    precision = setting(config, "parallel.mixed_precision")
    if precision == "fp16":
        issues.append(
            ConfigIssue(
                "error",
                "parallel.mixed_precision",
                "fp16 training needs loss scaling, which accelerate and DeepSpeed offer on accelerators only",
                "set parallel.mixed_precision=fp32 or bf16",
            )
        )
    if precision == "bf16" and not machine.has_bf16_instructions():
        issues.append(
            ConfigIssue(
                "warning",
                "parallel.mixed_precision",
                "this processor has no bfloat16 instructions: bf16 is emulated and slower than fp32",
                "set parallel.mixed_precision=fp32",
            )
        )
    processes, cpus = int(setting(config, "parallel.processes", 1)), machine.usable_cpus()
    if processes > cpus:
        issues.append(
            ConfigIssue(
                "warning",
                "parallel.processes",
                f"{processes} processes share {cpus} processors",
                f"set parallel.processes={cpus} or less, and raise data.batch_size or the accumulation steps",
            )
        )
    return issues


@hookimpl
def load_stack() -> tuple[str, ...]:
    """torch alone: a vendor's extension that is installed without its driver makes the import fail."""
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import torch

    return (f"torch {torch.__version__}",)


@hookimpl
def local_device() -> torch.device:
    """Every rank has the same device, without an index."""
    import torch

    return torch.device("cpu")


@hookimpl
def apply_patches() -> tuple[PatchReport, ...]:
    """Where `torch_npu` is loaded, diffusers calls its kernels for every tensor; CPU tensors would fail.

    `load_stack` hides it, but not what this process had imported before.
    """
    if sys.modules.get("torch_npu") is None or package_folder("diffusers") is None:
        return ()
    from diffusers.utils import import_utils

    flag, name = "_torch_npu_available", "diffusers: plain torch instead of torch_npu kernels"
    if not hasattr(import_utils, flag):
        return (PatchReport(name, applied=False, detail=f"this diffusers has no {import_utils.__name__}.{flag}"),)
    setattr(import_utils, flag, False)
    return (PatchReport(name, applied=True, detail="torch_npu was loaded before, but this run computes on the CPU"),)
