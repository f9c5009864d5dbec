"""Finding packages that have rewritten torch in this process, and saying what follows from it.

A backend answers for one chip on torch as its makers wrote it. Packages that let code written for one chip run on
another replace torch's functions; what asks torch afterwards is told something else than what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final


@dataclass(frozen=True)
class Rewrite:
    """One package that is at work in this process.

    Attributes:
        name: of the package, or of the function that somebody replaced.
        evidence: what was seen.
        consequence: what follows for this job.
        remedy: what to do.
    """

    name: str
    evidence: str
    consequence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name} ({self.evidence}): {self.consequence}; {self.remedy}"


_SPOOFED: Final = "torch reports a chip that is not there, and libraries choose their paths for that one"
_NOT_NEEDED: Final = "remove the import: models ask the backend here, nothing has to be redirected"
#: Module -> package, consequence, remedy. That these are imported says that they are at work.
_KNOWN: Final[Mapping[str, tuple[str, str, str]]] = {
    "torch_npu.contrib.transfer_to_npu": ("transfer_to_npu of torch_npu", _SPOOFED, _NOT_NEEDED),
    "ascend_compat": ("cuda-morph", f"{_SPOOFED}, or run on the CPU without a word", _NOT_NEEDED),
    "torchada": ("torchada", _SPOOFED, _NOT_NEEDED),
    "mindspeed.megatron_adaptor": (
        "MindSpeed",
        "optimizers, attention and the process groups of Megatron and torch are replaced by its own",
        "import it only in jobs that train with Megatron",
    ),
    "mx_driving": (
        "mx_driving",
        "it may have registered the NPU before torch_npu does, and its patchers may have replaced functions of torch, "
        "transformers and mmcv",
        "leave its import to the backend, which applies the patches that help and reports each",
    ),
}
#: Importing apex changes nothing, `apex.amp.initialize` does, and leaves its settings here.
_APEX_STATE: Final = "apex.amp._amp_state"
#: Functions whose replacement changes what everybody else sees.
_WATCHED: Final = (
    "cuda.is_available",
    "cuda.device_count",
    "cuda.current_device",
    "cuda.synchronize",
    "Tensor.cuda",
    "Tensor.to",
    "nn.Module.cuda",
    "nn.Module.to",
    "autocast.__init__",
    "distributed.init_process_group",
    "matmul",
    "Tensor.__getitem__",
    "jit.script",
)


def rewrites(modules: Mapping[str, Any] | None = None, own: Collection[str] = ()) -> tuple[Rewrite, ...]:
    """What has rewritten torch in this process; loads nothing.

    Args:
        modules: what is imported; `sys.modules` by default.
        own: packages that the backend has loaded itself; what those replace is how the chip works.
    """
    modules = sys.modules if modules is None else modules
    found: dict[str, Rewrite] = {}
    for module, (name, consequence, remedy) in _KNOWN.items():
        if modules.get(module) is not None:
            found.setdefault(name, Rewrite(name, f"{module} is imported", consequence, remedy))
    if hasattr(getattr(modules.get(_APEX_STATE), "_amp_state", None), "opt_properties"):
        found["apex"] = Rewrite(
            "apex",
            "apex.amp.initialize was called",
            "it casts by wrapping torch's functions, on top of the backend's autocast",
            "leave mixed precision to parallel.mixed_precision",
        )
    torch = modules.get("torch")
    owners: dict[str, list[str]] = {}
    for path in _WATCHED if isinstance(torch, ModuleType) else ():
        if owner := _foreign_owner(torch, path):
            owners.setdefault(owner, []).append(f"torch.{path}")
    told = set(own) | set(found) | {module.partition(".")[0] for module in _KNOWN if modules.get(module) is not None}
    for owner, functions in owners.items():
        if owner not in told:
            found[owner] = Rewrite(
                owner,
                f"it has replaced {', '.join(functions)}",
                "what these functions answer is no longer torch's word, and numbers and speed may differ",
                "import it after the job, or leave it out; `vla train` in a clean environment shows the difference",
            )
    return tuple(found.values())


def _foreign_owner(torch: Any, path: str) -> str:
    """Package of the function now found under `torch.PATH` if it is not torch's own."""
    value = torch
    for name in path.split("."):
        value = getattr(value, name, None)
    # Functions made in C++ have neither. `functools.wraps` copies the name of the module, but not the globals.
    space = getattr(value, "__globals__", None)
    module = space.get("__name__") if space is not None else getattr(value, "__module__", None)
    owner = module.partition(".")[0] if isinstance(module, str) else ""
    return "" if owner in ("", "torch") or owner in sys.stdlib_module_names else owner
