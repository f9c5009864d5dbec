"""The vendor's errors in plain words; put the particular before the general."""

from __future__ import annotations

from typing import Final

from vla_backend import Explanation, hookimpl
from vla_backend.explain import HOST, KnownError, explain
from vla_backend_paper import hardware

VENDOR_ERRORS: Final = (
    KnownError(
        rf"{hardware.DEVICE_TYPE}.*out of memory|out of memory.*{hardware.DEVICE_TYPE}",
        "The device ran out of memory.",
        "Weights, optimizer state and the activations of one batch do not fit together.",
        "Lower data.batch_size and raise train.gradient_accumulation_steps, or use parallel.mixed_precision=bf16.",
    ),
)


@hookimpl
def translate_error(error: BaseException) -> Explanation:
    return explain(error, (*VENDOR_ERRORS, *HOST))
