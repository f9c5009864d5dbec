"""The typed object that engine and models call; every hook of the contract has exactly one member here."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from vla_backend import extensions, resolve
from vla_backend.coexistence import Rewrite, rewrites
from vla_backend.discovery import Candidate
from vla_backend.errors import PhaseError
from vla_backend.markers import Phase
from vla_backend.types import (
    AttentionNeeds,
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
    ShardedState,
    VideoContext,
)

if TYPE_CHECKING:
    import numpy as np
    import torch


class Backend:
    """One activated backend; get it from `activate`.

    Values are resolved at first use and then plain attributes. A process walks through three phases: `load_stack()`
    ends pre-import, `local_device()` ends pre-init; calling a hook too early is a `PhaseError`.
    """

    def __init__(self, candidate: Candidate, manager: pluggy.PluginManager) -> None:
        self.candidate = candidate
        self.name = candidate.name
        self.phase = Phase.PRE_IMPORT
        #: What had rewritten torch when the stack was loaded.
        self.rewrites: tuple[Rewrite, ...] = ()
        self._manager = manager
        self._calls = _Calls(self)

    def __repr__(self) -> str:
        return f"Backend({self.name!r}, phase={self.phase}, from {self.candidate.distribution})"

    # identity

    @cached_property
    def info(self) -> BackendInfo:
        info: BackendInfo = self._calls["backend_info"]()
        return info

    @cached_property
    def device_type(self) -> str:
        """Torch's device type string."""
        return self.info.device_type

    def probe(self, env: Mapping[str, str] | None = None) -> Probe:
        """Whether this machine can run the backend; see the hook `probe`."""
        answer: Probe = self._calls["probe"](os.environ if env is None else env)
        return answer

    # launch

    def env_defaults(self, config: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
        """Variables to set for child processes; what the user has set stays, search paths may gain folders in front."""
        wanted: dict[str, str] = self._calls["env_defaults"](config, env)
        return {
            name: value
            for name, value in wanted.items()
            if name not in env or (name.endswith("PATH") and (not env[name] or value.endswith(os.pathsep + env[name])))
        }

    @cached_property
    def visible_devices_env(self) -> str:
        name: str = self._calls["visible_devices_env"]()
        return name

    def check_config(self, config: Mapping[str, Any], env: Mapping[str, str]) -> list[ConfigIssue]:
        """Findings about the complete configuration; an "error" must stop the job."""
        issues: list[ConfigIssue] = self._calls["check_config"](config, env)
        return issues

    def load_stack(self) -> tuple[str, ...]:
        """Import torch and the vendor's packages; ends the phase pre-import. A second call changes nothing.

        Extensions of torch for other chips are then hidden from the libraries imported later, and packages that have
        rewritten torch already are warned of and kept in `rewrites`.
        """
        return self._stack

    @cached_property
    def _stack(self) -> tuple[str, ...]:
        extensions.reveal()
        loaded: tuple[str, ...] = self._calls["load_stack"]()
        extensions.hide_unused()
        self.rewrites = rewrites(own=[package.split()[0] for package in loaded if package])
        if os.environ.get("LOCAL_RANK", "0") == "0":
            for rewrite in self.rewrites:
                warnings.warn(str(rewrite), RuntimeWarning, stacklevel=4)
        self.phase = max(self.phase, Phase.PRE_INIT)
        return loaded

    def local_device(self, local_rank: int) -> torch.device:
        """Take the device of this rank and make it current; ends the phase pre-init."""
        device: torch.device = self._calls["local_device"](self.device_type, local_rank)
        self.phase = Phase.DEVICE_READY
        self.__dict__["device"] = device
        return device

    @cached_property
    def device(self) -> torch.device:
        """The device of this rank.

        Raises:
            PhaseError: `local_device(local_rank)` has not been called yet.
        """
        raise PhaseError(
            f"Backend '{self.name}' has no device yet.",
            why=f"the phase is {self.phase}",
            fix="call backend.load_stack() and backend.local_device(local_rank) first",
        )

    def apply_patches(self) -> tuple[PatchReport, ...]:
        """Apply the vendor's patches; every one is reported."""
        reports: tuple[PatchReport, ...] = self._calls["apply_patches"]()
        return reports

    # precision

    @cached_property
    def autocast_device(self) -> str:
        name: str = self._calls["autocast_device"](self.device_type)
        return name

    def autocast(self, dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
        """Autocast to bfloat16 or float16; for float32 a region with autocast explicitly off."""
        torch = sys.modules["torch"]
        if dtype in (torch.bfloat16, torch.float16):
            context: contextlib.AbstractContextManager[Any] = torch.autocast(self.autocast_device, dtype=dtype)
            return context
        return self.fp32_region()

    def fp32_region(self) -> contextlib.AbstractContextManager[Any]:
        """A region in which arithmetic on float32 inputs stays float32; cast the inputs yourself."""
        context: contextlib.AbstractContextManager[Any] = self._calls["fp32_region"](self.device_type)
        return context

    def compute_dtype(self, requested: str) -> torch.dtype:
        """The dtype for "fp32", "bf16" or "fp16".

        Raises:
            UnsupportedError: the chip cannot train in it.
        """
        dtype: torch.dtype = self._calls["compute_dtype"](requested)
        return dtype

    def safe_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which a tensor of `dtype` can be put on the device."""
        safe: torch.dtype = self._calls["safe_dtype"](dtype)
        return safe

    def matmul_precision(self, level: str) -> dict[str, str]:
        """Set float32 matrix product precision ("default", "high" or "highest"); answers the settings made."""
        made: dict[str, str] = self._calls["matmul_precision"](level)
        return made

    # runtime

    def synchronize(self) -> None:
        """Wait for all queued work of the rank's device."""
        self._calls["synchronize"](self.device)

    def memory_stats(self, reset_peak: bool = False) -> MemoryStats:
        """Memory of this process on its device in bytes."""
        stats: MemoryStats = self._calls["memory_stats"](self.device, reset_peak)
        return stats

    def rng_state(self) -> dict[str, torch.Tensor]:
        """States of torch's generators that training uses, by generator name."""
        state: dict[str, torch.Tensor] = self._calls["rng_state"](self.device)
        return state

    def set_rng_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Put back what `rng_state` answered."""
        self._calls["set_rng_state"](self.device, state)

    def sampling_device(self, distribution: str, device: torch.device | None = None) -> torch.device:
        """Where to draw from `distribution`; `device` is where the sample is wanted (default: the rank's device)."""
        wanted = self.device if device is None else device
        where: torch.device = self._calls["sampling_device"](wanted, distribution)
        return where

    def translate_error(self, error: BaseException) -> Explanation:
        """A vendor error in plain words, or `known=False`."""
        explanation: Explanation = self._calls["translate_error"](error)
        return explanation

    # data

    @cached_property
    def pin_memory_ok(self) -> bool:
        answer: bool = self._calls["pin_memory_ok"]()
        return answer

    @cached_property
    def dataloader_defaults(self) -> LoaderDefaults:
        answer: LoaderDefaults = self._calls["dataloader_defaults"](available_cpus())
        return answer

    @cached_property
    def video_ctx(self) -> VideoContext:
        answer: VideoContext = self._calls["video_ctx"](platform.machine())
        return answer

    def to_numpy(self, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
        """Values of `tensor` as numpy; bfloat16 and float8 become float32."""
        array: np.ndarray[Any, Any] = self._calls["to_numpy"](tensor)
        return array

    def to_device(self, batch: Any) -> Any:
        """Move the tensors of a nested batch to the rank's device in dtypes the chip has; other values stay."""
        torch = sys.modules["torch"]
        if isinstance(batch, torch.Tensor):
            # The cast happens on the host: a chip without a dtype cannot be sent one.
            return batch.to(self.safe_dtype(batch.dtype)).to(self.device, non_blocking=batch.is_pinned())
        if isinstance(batch, Mapping):
            return {key: self.to_device(value) for key, value in batch.items()}
        if isinstance(batch, (list, tuple)):
            return type(batch)(self.to_device(value) for value in batch)
        return batch

    # train

    @cached_property
    def dist_backend(self) -> str:
        name: str = self._calls["dist_backend"]()
        return name

    @cached_property
    def collective_device(self) -> torch.device:
        device: torch.device = self._calls["collective_device"](self.device)
        return device

    def fused_optimizer(self, name: str) -> OptimizerChoice:
        """The fastest implementation of an optimizer whose state stays portable."""
        choice: OptimizerChoice = self._calls["fused_optimizer"](name)
        return choice

    def attention_impl(self, needs: AttentionNeeds) -> str:
        """Name of the attention implementation that meets `needs`."""
        name: str = self._calls["attention_impl"](needs)
        return name

    @cached_property
    def fused_kernels(self) -> FusedKernels:
        """The chip's own fused operators."""
        kernels: FusedKernels = self._calls["fused_kernels"]()
        return kernels

    @cached_property
    def compile_backend(self) -> str:
        """Name of the `torch.compile` backend for this chip.

        Raises:
            UnsupportedError: nothing can compile for it here.
        """
        name: str = self._calls["compile_backend"]()
        return name

    def tune_deepspeed(self, config: Mapping[str, Any]) -> DeepSpeedTuning:
        """A DeepSpeed configuration made fit for the chip, with the changes said."""
        tuning: DeepSpeedTuning = self._calls["tune_deepspeed"](config)
        return tuning

    @contextlib.contextmanager
    def evaluating(self, model: torch.nn.Module) -> Iterator[None]:
        """Evaluate `model` without gradients; afterwards every module is back in its own train or eval mode."""
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            with self._calls["zero3_safe_no_grad"](model):
                yield
        finally:
            for module, training in modes:
                module.training = training

    def save_sharded(self, state: ShardedState, directory: Path | str) -> list[str]:
        """Write this rank's shard without a gather; answers the files written."""
        files: list[str] = self._calls["save_sharded"](state, str(directory))
        return files

    def load_sharded(self, state: ShardedState, directory: Path | str) -> None:
        """Fill `state` from a sharded checkpoint."""
        self._calls["load_sharded"](state, str(directory))

    # explanation

    def providers(self) -> dict[str, str]:
        """For every hook who answers it: the plugin's name or "default"."""
        return resolve.providers(self._manager, self.name)

    def implementations(self, hook: str) -> list[Callable[..., Any]]:
        """The functions that implement `hook`: the one that answers first, then what it replaces."""
        return resolve.implementations(self._manager, hook)

    def arguments(self, hook: str) -> tuple[str, ...]:
        """Names of the arguments of `hook`, in the order of its specification."""
        return resolve.arguments(self._manager, hook)


class _Calls(dict[str, Callable[..., Any]]):
    """Hook name to resolved call; a hook is resolved, and its phase checked, when it is first asked for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __missing__(self, hook: str) -> Callable[..., Any]:
        call = resolve.call_for(self._backend._manager, self._backend.name, hook, self._backend.phase)
        self[hook] = call
        return call


def available_cpus() -> int:
    """Processors this process may use, shared among the ranks of this machine."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cpus // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
