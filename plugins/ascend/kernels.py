"""The NPU's fused operators: attention, root mean square norm and rotary embedding.

Limits and formulas are those of op-plugin's documentation of each operator, which torch_npu's wheel carries in
`_op_plugin_docs.py`. What an operator does not take is computed as torch composes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

#: Largest number of query heads and largest width of a head of npu_fusion_attention.
_MAX_HEADS: Final = 256
_MAX_HEAD_DIM: Final = 768
#: npu_rotary_mul: batch and heads are below the first, the width of a head is below the second.
_ROTARY_ROWS: Final = 1000
_ROTARY_DIM: Final = 896


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """softmax(query key^T / sqrt(head)) value by `npu_fusion_attention`; all (B, heads, L or S, head).

    The operator is for training and for masks of bool, so that a pass without gradients and a mask that is added stay
    with `scaled_dot_product_attention`, which torch_npu runs on the NPU as well.
    """
    import torch
    import torch_npu

    query, key, value = _autocast(query, key, value)
    (_, heads, length, width), keys = query.shape, key.shape[-2]
    if mask is not None and mask.ndim == 4:
        # Neither operator broadcasts the rows or columns of a mask.
        mask = mask.expand(*mask.shape[:2], length, keys)
    added = mask is not None and mask.dtype != torch.bool
    fits = key.shape == value.shape and key.shape[1] == heads <= _MAX_HEADS and width <= _MAX_HEAD_DIM
    if added or not fits or not torch.is_grad_enabled():
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    # True means "leave out" here, and "attend to" in torch.
    dropped = None if mask is None else mask.logical_not().contiguous()
    out: torch.Tensor = torch_npu.npu_fusion_attention(
        query, key, value, heads, "BNSD", atten_mask=dropped, scale=width**-0.5
    )[0]
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis by `npu_rms_norm`; x and weight of one dtype."""
    import torch_npu

    out: torch.Tensor = torch_npu.npu_rms_norm(x, weight, epsilon=eps)[0]
    return out


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x * cos + [-x2 | x1] * sin by `npu_rotary_mul`; x (B, heads, L, head), cos and sin (L, head).

    In the dtype of cos and sin, as torch would promote: angles in bfloat16 would move late positions. The result has
    the dtype of x.
    """
    import torch
    import torch_npu

    batch, heads, _, width = x.shape
    if max(batch, heads) >= _ROTARY_ROWS or width >= _ROTARY_DIM or width % 2:
        first, second = x.chunk(2, -1)
        return (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)
    wide = x.to(cos.dtype)
    out: torch.Tensor = torch_npu.npu_rotary_mul(wide, cos[None, None].contiguous(), sin[None, None].contiguous())
    return out.to(x.dtype)


def _autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """To the dtype that autocast gives attention; torch's lists do not know operators of other packages."""
    import torch

    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) for tensor in tensors)
