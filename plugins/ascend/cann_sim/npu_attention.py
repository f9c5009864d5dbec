"""npu_fusion_attention and its gradient, with the shapes of masks that the operator accepts and no others.

Source: op-plugin's documentation of npu_fusion_attention (`_op_plugin_docs.py` in torch_npu's wheel): atten_mask is
True where a position is dropped, of shape (B,N,Sq,Skv), (B,1,Sq,Skv), (1,1,Sq,Skv) or (Sq,Skv), bool or uint8; for
sparse_mode 2 and 3 (causal from the top left or the bottom right) it is the triangle of 2048 x 2048.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from vla_backend_ascend.cann_sim.meaning import Tensor, device, gradients, host, meaning

_LAYOUTS = ("BNSD", "BSND", "BSH", "SBH")
_POSITIONAL = (
    "pse",
    "padding_mask",
    "atten_mask",
    "scale",
    "keep_prob",
    "pre_tockens",
    "next_tockens",
    "inner_precise",
    "prefix",
    "actual_seq_qlen",
    "actual_seq_kvlen",
    "sparse_mode",
)
_GRAD_POSITIONAL = (
    "pse",
    "padding_mask",
    "atten_mask",
    "softmax_max",
    "softmax_sum",
    "softmax_in",
    "attention_in",
    "scale_value",
    "keep_prob",
    "pre_tockens",
    "next_tockens",
    "inner_precise",
    "seed",
    "offset",
    "numels",
    "prefix",
    "actual_seq_qlen",
    "actual_seq_kvlen",
    "sparse_mode",
)


def _to_bnsd(tensor: Tensor, heads: int, layout: str) -> Tensor:
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    parts = tensor.unflatten(-1, (heads, -1))
    return parts.transpose(1, 2) if layout == "BSH" else parts.permute(1, 2, 0, 3)


def _from_bnsd(tensor: Tensor, layout: str) -> Tensor:
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    return tensor.transpose(1, 2).flatten(2) if layout == "BSH" else tensor.permute(2, 0, 1, 3).flatten(2)


def _kv_heads(key: Tensor, query: Tensor, heads: int, layout: str) -> int:
    if layout in ("BNSD", "BSND"):
        return key.shape[1] if layout == "BNSD" else key.shape[2]
    return key.shape[-1] // (query.shape[-1] // heads)


def check_mask(mask: Tensor, batch: int, heads: int, queries: int, keys: int, sparse_mode: int = 0) -> None:
    """Refuse a mask that the fused kernel refuses.

    Raises:
        RuntimeError: a shape that would have to be broadcast, or a dtype other than bool and uint8.
    """
    source = "npu_fusion_attention, atten_mask; op-plugin's documentation"
    if mask.dtype not in (torch.bool, torch.uint8):
        torch.ops.cann_sim.refuse(f"unsupported atten_mask dtype {mask.dtype}, only bool and uint8 ({source})")
    full = (queries, keys)
    shapes = [(batch, heads, *full), (batch, 1, *full), (1, 1, *full), full]
    if sparse_mode in (2, 3, 4):
        shapes = [(2048, 2048)]
    if tuple(mask.shape) not in shapes:
        torch.ops.cann_sim.refuse(
            f"unsupported atten_mask shape {tuple(mask.shape)}, only {' '.join(map(str, shapes))} "
            f"with sparse_mode {sparse_mode} ({source})"
        )


def _attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, layout: str, pse: Tensor | None, mask: Tensor | None,
    scale: float, sparse_mode: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output in `layout`, and the maximum and sum of the softmax, (B, N, Sq, 8)."""
    kv = _kv_heads(key, query, heads, layout)
    q = _to_bnsd(query, heads, layout).float()
    k, v = (_to_bnsd(tensor, kv, layout).float().repeat_interleave(heads // kv, 1) for tensor in (key, value))
    score = q @ k.transpose(-1, -2)
    score = (score if pse is None else score + pse) * scale  # the documented order: the position bias is scaled too
    if mask is not None:
        check_mask(mask, q.shape[0], heads, q.shape[2], k.shape[2], sparse_mode)
        if sparse_mode in (2, 3):
            shift = 1 if sparse_mode == 2 else 1 + k.shape[2] - q.shape[2]
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(shift)
        score = score.masked_fill(mask.bool(), torch.finfo(torch.float32).min)
    top = score.amax(-1, keepdim=True)
    weight = (score - top).exp()
    total = weight.sum(-1, keepdim=True)
    out = _from_bnsd((weight / total @ v).to(query.dtype), layout)
    return out, top.expand(*top.shape[:-1], 8), total.expand(*total.shape[:-1], 8)


def _options(
    positional: tuple[Any, ...], order: tuple[str, ...], keywords: dict[str, Any], layout: str
) -> dict[str, Any]:
    options = {**dict(zip(order, positional, strict=False)), **keywords}
    asked = []
    if options.get("keep_prob", 1.0) != 1.0:
        asked.append("dropout")
    if options.get("actual_seq_qlen") or options.get("actual_seq_kvlen") or layout not in _LAYOUTS:
        asked.append(f"layout {layout} with varlen")
    if options.get("sparse_mode", 0) not in (0, 1, 2, 3):
        asked.append(f"sparse_mode {options['sparse_mode']}")
    if options.get("prefix"):
        asked.append("prefix")
    if asked:
        raise NotImplementedError(f"simulated CANN: npu_fusion_attention with {' and '.join(asked)} is not simulated")
    return options


@meaning("npu_fusion_attention")
def npu_fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, *positional: Any, **keywords: Any
) -> Any:
    """softmax(mask(scale * (q k^T + pse))) v; the softmax is kept in float32."""
    options = _options(positional, _POSITIONAL, keywords, input_layout)
    out, top, total = _attention(
        host(query), host(key), host(value), head_num, input_layout, host(options.get("pse")),
        host(options.get("atten_mask")), options.get("scale", 1.0), options.get("sparse_mode", 0),
    )  # fmt: skip
    empty = torch.empty(0, dtype=query.dtype, device=query.device)
    return (*device((out, top, total), query), empty, 0, 0, 0)


@meaning("npu_fusion_attention_grad")
def npu_fusion_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *positional: Any,
    **keywords: Any,
) -> Any:
    options = _options(positional, _GRAD_POSITIONAL, keywords, input_layout)
    pse, mask = host(options.get("pse")), host(options.get("atten_mask"))

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale, mode = options.get("scale_value", 1.0), options.get("sparse_mode", 0)
        return _attention(q, k, v, head_num, input_layout, pse, mask, scale, mode)[0]

    grads = device(gradients(forward, (query, key, value), dy), query)
    returns = len(torch.ops.npu.npu_fusion_attention_grad.default._schema.returns)
    return (*grads, *(torch.empty(0, dtype=query.dtype, device=query.device) for _ in range(returns - 3)))


def default_scale(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
