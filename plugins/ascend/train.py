"""Training on NPUs.

The optimizer is torch's own (the default), which runs its multi-tensor path on NPUs: torch_npu's fused optimizers keep
their state in merged tensors that no other backend can read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from vla_backend import AttentionNeeds, DeepSpeedTuning, FusedKernels, Unsupported, hookimpl
from vla_backend.installed import package_folder
from vla_backend.settings import setting
from vla_backend_ascend import kernels

#: Elements per collective. Larger buckets time out on busy networks and hold more memory.
BUCKET: Final = 100_000_000
_DEEPSPEED_BUCKET: Final = 500_000_000
_BUCKETS: Final = ("reduce_bucket_size", "allgather_bucket_size")


@hookimpl
def dist_backend() -> str:
    """HCCL is the only library that moves NPU memory."""
    return "hccl"


@hookimpl
def attention_impl(needs: AttentionNeeds) -> str:
    """With torch_npu installed, transformers' "sdpa" reduces an additive mask to a boolean one and loses biases."""
    return "eager" if needs.mask == "additive" else "sdpa"


@hookimpl
def fused_kernels() -> FusedKernels:
    """Those of torch_npu; what they do not take falls back to torch's composition in `kernels.py`."""
    return FusedKernels(attention=kernels.attention, rms_norm=kernels.rms_norm, rotary=kernels.rotary)


@hookimpl
def compile_backend() -> str | Unsupported:
    """torch_npu registers CANN's graph compiler, torchair, under the name "npu"."""
    folder = package_folder("torch_npu")
    if folder is None or not (folder / "dynamo" / "torchair").is_dir():
        return Unsupported(
            "torch.compile needs torchair for NPUs, and this torch_npu comes without it",
            "install a torch_npu wheel that has it, or set train.compile=false",
        )
    return "npu"


@hookimpl
def tune_deepspeed(config: Mapping[str, Any]) -> DeepSpeedTuning:
    """DeepSpeed's defaults are sized for NVLink and call an operator that fails after evaluation."""
    tuned = copy.deepcopy(dict(config))
    zero = tuned.get("zero_optimization")
    stage = setting(config, "zero_optimization.stage", 0)
    if not isinstance(zero, Mapping) or not stage:
        return DeepSpeedTuning(config=tuned)
    zero = tuned["zero_optimization"] = dict(zero)
    changes = []
    for key in _BUCKETS:
        given = zero.get(key, _DEEPSPEED_BUCKET)
        # "auto" is filled in later, from the width of the model.
        if given != "auto" and float(given) > BUCKET:
            zero[key] = BUCKET
            changes.append(f"{key}: {float(given):g} -> {BUCKET:g}, larger collectives time out on HCCL")
    if stage == 3 and zero.get("memory_efficient_linear", True):
        zero["memory_efficient_linear"] = False
        changes.append("memory_efficient_linear: off, it keeps tensors of evaluation and fails in the next step")
    if setting(zero, "offload_optimizer.device", "none") != "none" and "zero_force_ds_cpu_optimizer" not in tuned:
        tuned["zero_force_ds_cpu_optimizer"] = False
        changes.append("zero_force_ds_cpu_optimizer: off, DeepSpeed's CPU optimizer is compiled against CANN first")
    return DeepSpeedTuning(config=tuned, changes=tuple(changes))
