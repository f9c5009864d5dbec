"""Representative arguments for every hook, so that a kit for all plugins can call it."""

from __future__ import annotations

import copy
import os
from typing import Any, Final

from vla_backend import AttentionNeeds

#: What `vla train` hands to the launch hooks, as far as a plugin may care.
CONFIG: Final[dict[str, Any]] = {
    "backend": "auto",
    "run": {"id": "conformance", "root": "runs", "seed": 42},
    "model": {"name": "dit4dit", "attn_implementation": None},
    "data": {"decoder": "auto", "batch_size": 2, "num_workers": "auto"},
    "train": {"max_steps": 20, "matmul_precision": "default", "compile": False},
    "parallel": {
        "processes": 1,
        "strategy": "ddp",
        "mixed_precision": "bf16",
        "dist_timeout": 1800,
        "deepspeed": {"zero_optimization": {"overlap_comm": False}},
    },
}

DEEPSPEED: Final[tuple[dict[str, Any], ...]] = tuple(
    {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "train_batch_size": 4,
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
    }
    for zero in (
        {"stage": 2, "reduce_bucket_size": 500_000_000, "allgather_bucket_size": 500_000_000},
        {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": 50_000_000},
        {"stage": 2, "reduce_bucket_size": 5e8, "offload_optimizer": {"device": "cpu"}},
    )
)

#: Time limits of collectives that checks ask for; the plugin derives its library's own from `parallel.dist_timeout`.
PATIENT, SHORT = 60, 5
PRECISIONS: Final = ("fp32", "bf16", "fp16")
DISTRIBUTIONS: Final = ("beta", "dirichlet", "gamma")
NEEDS: Final = (
    AttentionNeeds(),
    AttentionNeeds(causal=True),
    AttentionNeeds(mask="bool"),
    AttentionNeeds(head_dim=128, causal=True, mask="additive", training=False),
    AttentionNeeds(mask="additive", dropout=True),
)


def config(**parallel: Any) -> dict[str, Any]:
    """A configuration of one's own, with settings of `parallel` replaced."""
    made = copy.deepcopy(CONFIG)
    made["parallel"].update(parallel)
    return made


class Unprintable(Exception):
    """Some libraries build their messages late and fail at it."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def errors() -> list[BaseException]:
    """Exceptions as they really come: without a message, not of text, in a circle, unprintable, no `Exception`."""
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    return [RuntimeError(), ValueError(b"\xff", 3), first, Unprintable(), KeyboardInterrupt(), OSError(28, "No space")]


def pre_import() -> dict[str, list[tuple[Any, ...]]]:
    """Arguments for the hooks before torch is imported, but for `load_stack`."""
    two = config(processes=2, strategy="zero2", mixed_precision="fp32", dist_timeout=600)
    return {
        "backend_info": [()],
        "probe": [(dict(os.environ),)],
        "env_defaults": [(config(), dict(os.environ)), (two, {}), ({}, {})],
        "visible_devices_env": [()],
        "check_config": [(config(), dict(os.environ)), (two, {}), ({}, {})],
        "pin_memory_ok": [()],
        "dataloader_defaults": [(1,), (8,), (192,)],
        "video_ctx": [("x86_64",), ("aarch64",)],
        "translate_error": [(error,) for error in errors()],
        "dist_backend": [()],
        "compile_backend": [()],
        "tune_deepspeed": [(copy.deepcopy(one),) for one in DEEPSPEED],
    }


def pre_init(device_type: str) -> dict[str, list[tuple[Any, ...]]]:
    """Arguments for the hooks that need torch but no device, but for `local_device`."""
    import torch

    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)
    return {
        "apply_patches": [()],
        "compute_dtype": [(name,) for name in PRECISIONS],
        "safe_dtype": [(dtype,) for dtype in dtypes],
        "matmul_precision": [("default",)],
        "sampling_device": [(torch.device("cpu"), name) for name in DISTRIBUTIONS],
        "to_numpy": [(torch.arange(3.0),)],
        "fused_optimizer": [("AdamW",), ("SGD",)],
        "attention_impl": [(needs,) for needs in NEEDS],
        "fused_kernels": [()],
        "zero3_safe_no_grad": [(torch.nn.Linear(2, 2),)],
    }


def device_ready(device: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Arguments for the hooks that need the device, but for those that read and write checkpoints."""
    return {
        "autocast_device": [(device.type,)],
        "fp32_region": [(device.type,)],
        "synchronize": [(device,)],
        "memory_stats": [(device, False), (device, True)],
        "rng_state": [(device,)],
        "collective_device": [(device,)],
    }


#: Called where their arguments are at hand: the phases themselves, generator states, checkpoints.
ELSEWHERE: Final = ("load_stack", "local_device", "set_rng_state", "save_sharded", "load_sharded")
