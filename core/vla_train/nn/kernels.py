"""Giving the backend's fused operators to the layers of a model, the engine's own and those of libraries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import MethodType

import torch
from torch import nn
from torch.nn import functional

from vla_backend import FusedKernels


def attend(
    kernels: FusedKernels,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Scaled dot-product attention, fused where the chip has it; shapes and mask as in `FusedKernels.attention`."""
    if kernels.attention is not None:
        return kernels.attention(query, key, value, mask)
    if mask is not None and mask.ndim == 4:
        # A view; some chips' attention takes no mask whose rows or columns would have to be broadcast.
        mask = mask.expand(*mask.shape[:2], query.shape[-2], key.shape[-2])
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def use_kernels(model: nn.Module, kernels: FusedKernels) -> dict[str, int]:
    """Let every layer of `model` compute with `kernels`; answers how many layers took which.

    A layer, or the attention processor of a layer, takes them by an attribute `kernels`. Root mean square norms of
    libraries are recognised by the name of their class and their weight, and get a new `forward`.
    """
    used: Counter[str] = Counter()
    for module in model.modules():
        for taker in (module, getattr(module, "processor", None)):
            if isinstance(getattr(taker, "kernels", None), FusedKernels):
                taker.kernels = kernels  # type: ignore[union-attr]
                used["attention"] += kernels.attention is not None
        if kernels.rms_norm is not None and _is_rms_norm(module):
            module.forward = MethodType(_rms_norm(kernels.rms_norm), module)
            used["rms_norm"] += 1
    return {name: count for name, count in used.items() if count}


def _is_rms_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return type(module).__name__.endswith("RMSNorm") and isinstance(weight, torch.Tensor) and _eps(module) is not None


def _eps(module: nn.Module) -> float | None:
    """diffusers and torch call it `eps`, transformers `variance_epsilon`."""
    eps = getattr(module, "eps", None)
    return getattr(module, "variance_epsilon", None) if eps is None else eps


def _rms_norm(fused: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        # Libraries differ in the dtype of the product when the weight has another one than the input; a fused operator
        # takes one dtype, so that such a layer is not for it.
        weight, eps = self.weight, _eps(self)
        assert isinstance(weight, torch.Tensor)
        assert eps is not None
        if weight.dtype != x.dtype:
            return type(self).forward(self, x)
        return fused(x, weight, eps)

    return forward
