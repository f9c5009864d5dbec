"""A plugin as a third party wrote it for version 1.0: every hook, with every argument there was."""

from __future__ import annotations

import contextlib

from vla_backend import (
    BackendInfo,
    ConfigIssue,
    DeepSpeedTuning,
    Explanation,
    FusedKernels,
    LoaderDefaults,
    MemoryStats,
    OptimizerChoice,
    PatchReport,
    Probe,
    VideoContext,
    hookimpl,
)

#: Calls by hook; the test reads it.
calls: dict[str, tuple] = {}


def called(hook, *arguments):
    calls[hook] = arguments


@hookimpl
def backend_info():
    called("backend_info")
    return BackendInfo(device_type="cpu", vendor="Yesterday", api="1.0", priority=10)


@hookimpl
def probe(env):
    called("probe", env)
    return Probe(ok=True, reason="always there", remedy="", device_count=1, shared=True)


@hookimpl
def env_defaults(config, env):
    called("env_defaults", config, env)
    return {"YESTERDAY": "1"}


@hookimpl
def visible_devices_env():
    called("visible_devices_env")
    return "YESTERDAY_VISIBLE"


@hookimpl
def check_config(config, env):
    called("check_config", config, env)
    return [ConfigIssue("warning", "train.max_steps", "is large", "lower it")]


@hookimpl
def load_stack():
    called("load_stack")
    import torch

    return (f"torch {torch.__version__}",)


@hookimpl
def local_device(device_type, local_rank):
    called("local_device", device_type, local_rank)
    import torch

    return torch.device(device_type)


@hookimpl
def apply_patches():
    called("apply_patches")
    return (PatchReport("old", False, "not needed"),)


@hookimpl
def autocast_device(device_type):
    called("autocast_device", device_type)
    return device_type


@hookimpl
def fp32_region(device_type):
    called("fp32_region", device_type)
    import torch

    return torch.autocast(device_type, enabled=False)


@hookimpl
def compute_dtype(requested):
    called("compute_dtype", requested)
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16}[requested]


@hookimpl
def safe_dtype(dtype):
    called("safe_dtype", dtype)
    return dtype


@hookimpl
def matmul_precision(level):
    called("matmul_precision", level)
    return {}


@hookimpl
def synchronize(device):
    called("synchronize", device)


@hookimpl
def memory_stats(device, reset_peak):
    called("memory_stats", device, reset_peak)
    return MemoryStats(allocated=1, reserved=2, peak=3, total=4)


@hookimpl
def rng_state(device):
    called("rng_state", device)
    import torch

    return {"cpu": torch.get_rng_state()}


@hookimpl
def set_rng_state(device, state):
    called("set_rng_state", device, state)


@hookimpl
def sampling_device(device, distribution):
    called("sampling_device", device, distribution)
    return device


@hookimpl
def translate_error(error):
    called("translate_error", error)
    return Explanation(known=True, what="old", why="older", remedy="newer")


@hookimpl
def pin_memory_ok():
    called("pin_memory_ok")
    return False


@hookimpl
def dataloader_defaults(cpu_count):
    called("dataloader_defaults", cpu_count)
    return LoaderDefaults(start_method="spawn", num_workers=1, prefetch_factor=2)


@hookimpl
def video_ctx(machine):
    called("video_ctx", machine)
    return VideoContext(decoders=("pyav",), device="cpu", threads=1)


@hookimpl
def to_numpy(tensor):
    called("to_numpy", tensor)
    return tensor.detach().numpy()


@hookimpl
def dist_backend():
    called("dist_backend")
    return "gloo"


@hookimpl
def collective_device(device):
    called("collective_device", device)
    return device


@hookimpl
def fused_optimizer(name):
    called("fused_optimizer", name)
    return OptimizerChoice(path=f"torch.optim:{name}", kwargs={})


@hookimpl
def attention_impl(needs):
    called("attention_impl", needs.head_dim, needs.causal, needs.mask, needs.dropout, needs.training)
    return "eager"


@hookimpl
def fused_kernels():
    called("fused_kernels")
    return FusedKernels(attention=None, rms_norm=None, rotary=None)


@hookimpl
def compile_backend():
    called("compile_backend")
    return "eager"


@hookimpl
def tune_deepspeed(config):
    called("tune_deepspeed", config)
    return DeepSpeedTuning(config={**config, "old": True}, changes=("old: on",))


@hookimpl
def zero3_safe_no_grad(model):
    called("zero3_safe_no_grad", model)
    return contextlib.nullcontext()


@hookimpl
def save_sharded(state, directory):
    called("save_sharded", state.rank, state.world_size, state.deepspeed, state.tensors, directory)
    return ["old.bin"]


@hookimpl
def load_sharded(state, directory):
    called("load_sharded", state.load_tensors, directory)
