"""Meaning of the npu:: operators that training meets, on CPU kernels. Any other npu:: operator fails by name.

Formulas follow op-plugin's documentation of each operator (torch_npu's wheel carries it in `_op_plugin_docs.py`).
Shapes are written with B batch, N heads, S sequence, D head dimension, H = N * D.
"""

from __future__ import annotations

from typing import Any

import torch

from vla_backend_ascend.cann_sim.meaning import SCALAR_TYPES, Tensor, device, gradients, host, meaning

# casts and formats


def _dtype(value: torch.dtype | int) -> torch.dtype:
    return value if isinstance(value, torch.dtype) else getattr(torch, SCALAR_TYPES[value])


@meaning("npu_dtype_cast", "_npu_dtype_cast")
def npu_dtype_cast(tensor: Tensor, dtype: torch.dtype | int) -> Tensor:
    return device(host(tensor).to(_dtype(dtype)), tensor)


@meaning("npu_dtype_cast_backward", "_npu_dtype_cast_backward")
def npu_dtype_cast_backward(grad: Tensor, dtype: torch.dtype | int) -> Tensor:
    return npu_dtype_cast(grad, dtype)


@meaning("npu_format_cast", "npu_format_cast_")
def npu_format_cast(tensor: Tensor, acl_format: Any, *_: Any, **__: Any) -> Tensor:
    return tensor  # private formats are a matter of layout in device memory; values stay


# normalisation, rotary embedding, activation


@meaning("npu_rms_norm")
def npu_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """x * rstd * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon) in float32; the output has x's dtype."""
    value = host(x).float()
    axes = tuple(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(value.pow(2).mean(axes, keepdim=True) + epsilon)
    return device(((value * rstd * host(gamma).float()).to(x.dtype), rstd), x)


@meaning("npu_rms_norm_backward")
def npu_rms_norm_backward(dy: Tensor, x: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    scale, inverse = host(gamma).float(), host(rstd).float()
    normal, grad = host(x).float() * inverse, host(dy).float()
    axes = tuple(range(-gamma.dim(), 0))
    dgamma = (grad * normal).reshape(-1, *gamma.shape).sum(0)
    inner = grad * scale
    dx = inverse * (inner - normal * (inner * normal).mean(axes, keepdim=True))
    return device((dx.to(x.dtype), dgamma), x)


def _rotate(x: Tensor, r1: Tensor, r2: Tensor, mode: str) -> Tensor:
    """x * r1 + rotate(x) * r2 with rotate = [-second half, first half] or, interleaved, the same on pairs."""
    if mode == "half":
        first, second = x.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    elif mode == "interleave":
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    else:
        raise NotImplementedError(f"simulated CANN: npu_rotary_mul with rotary_mode '{mode}' is not simulated")
    return x * r1 + turned * r2


def _check_rotary(x: Tensor, r1: Tensor, r2: Tensor) -> None:
    """Refuse what the documentation of npu_rotary_mul does not list, for the layout (B, N, S, D)."""
    source = "npu_rotary_mul; op-plugin's documentation"
    if x.dim() != 4 or r1.dim() != 4 or x.shape[-1] % 2 or x.shape[-1] >= 896:
        torch.ops.cann_sim.refuse(
            f"unsupported shapes {tuple(x.shape)}, {tuple(r1.shape)}: four axes, the last even and below 896 ({source})"
        )
    if len({x.dtype, r1.dtype, r2.dtype}) > 1:
        torch.ops.cann_sim.refuse(f"unsupported dtypes {x.dtype}, {r1.dtype}, {r2.dtype}: they must agree ({source})")


@meaning("npu_rotary_mul")
def npu_rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    _check_rotary(x, r1, r2)
    return device(_rotate(host(x), host(r1), host(r2), rotary_mode).to(x.dtype), x)


@meaning("npu_rotary_mul_backward")
def npu_rotary_mul_backward(grad: Tensor, x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Any:
    return device(gradients(lambda a, b, c: _rotate(a, b, c, rotary_mode).to(x.dtype), (x, r1, r2), grad), x)


def _swiglu(x: Tensor, dim: int) -> Tensor:
    gate, value = x.chunk(2, dim)
    return torch.nn.functional.silu(gate) * value


@meaning("npu_swiglu")
def npu_swiglu(x: Tensor, dim: int = -1) -> Tensor:
    return device(_swiglu(host(x), dim), x)


@meaning("npu_swiglu_backward")
def npu_swiglu_backward(grad: Tensor, x: Tensor, dim: int = -1) -> Tensor:
    return device(gradients(lambda i: _swiglu(i, dim), (x,), grad)[0], x)
