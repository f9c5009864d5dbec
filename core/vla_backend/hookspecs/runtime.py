"""A running process: synchronisation, memory, random numbers, errors."""

# mypy: disable-error-code="empty-body"
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vla_backend.markers import Phase, hookspec
from vla_backend.types import Explanation, MemoryStats


@hookspec(Phase.DEVICE_READY, returns=None)
def synchronize(device: Any) -> None:
    """Wait until all work queued on `device` is done.

    Called: around timed sections and before a checkpoint is written.
    Must not: be called by models inside a step.
    Default: `torch.accelerator.synchronize`; nothing on the CPU.
    """


@hookspec(Phase.DEVICE_READY, returns=MemoryStats)
def memory_stats(device: Any, reset_peak: bool) -> MemoryStats:
    """Memory of this process on `device` in bytes; with `reset_peak` the peak counts anew afterwards.

    Called: on logging steps.
    Must not: empty caches or synchronise.
    Default: the statistics of torch's device module; zeros for figures it does not have.
    """


@hookspec(Phase.DEVICE_READY, returns=dict)
def rng_state(device: Any) -> dict[str, Any]:
    """States of the random generators that training uses, as CPU byte tensors by generator name.

    Called: when a checkpoint is written.
    Must not: advance a generator.
    Default: torch's CPU generator, and the device's own if it has one.
    """


@hookspec(Phase.DEVICE_READY, returns=None)
def set_rng_state(device: Any, state: Mapping[str, Any]) -> None:
    """Put back what `rng_state` answered; generators that this device lacks are ignored.

    Called: when a run is resumed.
    Must not: seed anything that `state` does not hold.
    Default: the counterpart of the default `rng_state`.
    """


@hookspec(Phase.PRE_INIT, returns="torch.device")
def sampling_device(device: Any, distribution: str) -> Any:
    """The device on which to draw from `distribution` ("beta", "dirichlet" ...); the sample is moved afterwards.

    Called: by models before each draw from a distribution other than uniform and normal.
    Must not: depend on the state of a generator.
    Default: the CPU, where every distribution exists and draws are equal for all chips.
    """


@hookspec(Phase.PRE_IMPORT, returns=Explanation)
def translate_error(error: BaseException) -> Explanation:
    """Say in plain words what a vendor error means and what to check; `known=False` if there is nothing to add.

    Called: when a training process ends with an exception; the original traceback stays.
    Must not: raise, or hide the original error.
    Default: knows errors of the host (memory, ports, data workers) and misuse of torch; see `vla_backend.explain`.
    """
