"""Chips that compute something else."""

from __future__ import annotations

import torch

from tests.conformance.broken.sound import Present
from vla_backend import FusedKernels, OptimizerChoice, hookimpl


class MergedAdamW(torch.optim.AdamW):
    """AdamW with an entry more in its state."""

    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["merged"] = torch.zeros(1)


class OtherRule(Present):
    @hookimpl
    def fused_optimizer(name):
        return OptimizerChoice("torch.optim:Adam")


class OtherState(Present):
    @hookimpl
    def fused_optimizer(name):
        return OptimizerChoice("tests.conformance.broken.arithmetic:MergedAdamW")


class UnknownAttention(Present):
    @hookimpl
    def attention_impl(needs):
        return "flash_mychip"


def _register(name, change):
    """An implementation that transformers knows, which changes the mask first."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attend(module, query, key, value, mask, **options):
        return sdpa(module, query, key, value, None if mask is None else change(mask), **options)

    ALL_ATTENTION_FUNCTIONS.register(name, attend)
    return name


class InvertsMask(Present):
    @hookimpl
    def attention_impl(needs):
        return _register("inverting", lambda mask: ~mask if mask.dtype is torch.bool else mask)


class DropsMask(Present):
    @hookimpl
    def attention_impl(needs):
        return _register("dropping", lambda mask: None)


class ReducesBias(Present):
    @hookimpl
    def attention_impl(needs):
        return _register("reducing", lambda mask: mask > -1e30 if mask.is_floating_point() else mask)


class CoarseArithmetic(Present):
    """Float32 is bfloat16 inside."""

    @hookimpl
    def fp32_region(device_type):
        return torch.autocast(device_type, dtype=torch.bfloat16)


class FusedMaskInverted(Present):
    """The operator's mask is true where a key is left out, and nobody turned it round."""

    @hookimpl
    def fused_kernels():
        def attention(query, key, value, mask):
            turned = ~mask if mask is not None and mask.dtype is torch.bool else mask
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, turned)

        return FusedKernels(attention=attention)


class FusedWithoutBackward(Present):
    @hookimpl
    def fused_kernels():
        norm = torch.nn.functional.rms_norm
        return FusedKernels(rms_norm=lambda x, weight, eps: norm(x.detach(), (32,), weight, eps))


class FusedInterleaved(Present):
    """Turns neighbours instead of halves."""

    @hookimpl
    def fused_kernels():
        def rotary(x, cos, sin):
            turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
            return x * cos + turned * sin

        return FusedKernels(rotary=rotary)
