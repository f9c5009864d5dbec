"""Which of torch_npu's operators stay its own, which run on CPU kernels, and which fail by name."""

from __future__ import annotations

import os
from pathlib import Path

from vla_backend_ascend.cann_sim import build, meaning, npu_attention, npu_operators, report, rules  # noqa: F401

# Allocation, views, storage and transfers: these are what the simulated runtime is there to test.
OWN = frozenset(
    [
        "_copy_from_and_resize",
        "_fused_sdp_choice",
        "_has_compatible_shallow_copy_type",
        "_lazy_clone",
        "_local_scalar_dense",
        "_pin_memory",
        "_reshape_alias",
        "_to_copy",
        "as_strided",
        "as_strided_",
        "contiguous",
        "copy_",
        "copy_memory_",
        "empty.memory_format",
        "empty_like",
        "empty_strided",
        "empty_with_format",
        "empty_with_swapped_memory",
        "is_pinned",
        "is_set_to",
        "new_empty_strided",
        "record_stream",
        "resize_",
        "resize_as_",
        "set_",
        "set_.source_Storage",
        "set_.source_Storage_storage_offset",
        "set_.source_Tensor",
        "squeeze",
        "squeeze.dim",
        "to.device",  # these three: its own up to 2.7, where they make float64 float32
        "to.dtype",
        "to.other",
        "unfold",
        "view",
        "view_as_complex",
        "view_as_real",
    ]
)
# Operators that take tensors of host and device by design.
MIXED = ("_pack_padded_sequence", "tensor_split.tensor_indices_or_sections")
# torch_npu's npu:: operators that do their work in its own C++ with the runtime alone.
OWN_NPU = frozenset(
    [
        "copy_memory_",
        "empty_with_format",
        "empty_with_format.names",
        "empty_with_swapped_memory",
        "get_npu_format",
        "get_storage_size",
        "unsafe_empty_with_format",
        "npu_change_data_ptr",
        "_npu_storage_resize",
    ]
)


def install(toolkit: Path) -> None:
    """Give torch_npu's operators their meaning in this process; called once, right after torch_npu's import."""
    import torch

    torch.ops.load_library(str(build.bridge(toolkit)))
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    aten = [name.removeprefix("aten::") for name in registered if name.startswith("aten::")]
    bridged = [name for name in aten if name not in OWN and _has("aten::" + name, "CPU")]
    meant = meaning.names()
    unknown = [
        name
        for name in registered
        if (name.startswith("npu::") and name.removeprefix("npu::") not in OWN_NPU | meant)
        or (name.startswith("aten::") and name.removeprefix("aten::") not in OWN | meant and not _has(name, "CPU"))
    ]
    torch.ops.cann_sim.install(
        bridged,
        _autograd(bridged),
        [name for name in MIXED if name in bridged],
        unknown,
        os.environ.get("CANN_SIM_RULES") == "warn",
        os.environ.get("TASK_QUEUE_ENABLE") != "0",
    )
    meaning.register()
    rules.install(set(bridged))
    report.install()
    _count_steps()


def _has(name: str, key: str) -> bool:
    import torch

    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key))


def _autograd(bridged: list[str]) -> list[str]:
    """Operators whose autograd kernel must be upstream's: torch_npu's own, and composites it took over."""
    import torch

    registered = torch._C._dispatch_get_registrations_for_dispatch_key("AutogradPrivateUse1")
    own = [
        name.removeprefix("aten::") for name in registered if name.startswith("aten::") and _has(name, "AutogradCPU")
    ]
    composite = [
        name
        for name in bridged
        if torch._C._dispatch_has_kernel_for_dispatch_key("aten::" + name, "CompositeImplicitAutograd")
    ]
    return sorted({name for name in (*own, *composite) if name not in OWN})


def _count_steps() -> None:
    """Faults are due after so many optimizer steps; an optimizer with several groups counts every call of step()."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: torch.ops.cann_sim.step())
