"""Chips that compute something else."""

from __future__ import annotations

import torch

from tests.conformance.broken.sound import Present
from vla_backend import OptimizerChoice, hookimpl


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
