"""What a 910B refuses where torch's CPU kernels would accept. `docs/ascend_simulation.md` prints this table.

Rules about dtypes are data here and are checked by the bridge at every operator; the others are checked where `where`
says. With `--rules warn` each is a warning, except those marked "always", which torch_npu or torch itself raises.
Those marked "warns" are never more than a warning: the vendor's lists leave the dtype out, yet torch's own code relies
on some of them on NPUs (printing a tensor and GradScaler compute in float64 under torch 2.7).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_LISTS = "Ascend/pytorch, docs/zh/api/native_api/pytorch_2-11-0 (supported dtypes of every API on Atlas A2)"
_FLOAT64 = ("float64",)
_COMPLEX = ("complex64", "complex128")


@dataclass(frozen=True)
class Rule:
    """`operators` are aten base names; a rule holds for their overloads, in-place and out= forms too."""

    id: str
    says: str
    source: str
    where: str
    always: bool = False
    warns: bool = False
    dtypes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


def _dtype_rule(
    id_: str, says: str, dtypes: tuple[str, ...], operators: str, source: str = _LISTS, warns: bool = False
) -> Rule:
    names = tuple(operators.split())
    return Rule(id_, says, source, "rules.cpp, check_dtype", dtypes=dtypes, operators=names, warns=warns)


RULES = (
    _dtype_rule(
        "float64-matmul",
        "matrix products, convolutions and attention have no float64",
        _FLOAT64,
        """addbmm addmm addmv addr baddbmm bmm convolution convolution_overrideable _convolution dot linear matmul mm mv
        scaled_dot_product_attention slow_conv_transpose2d slow_conv3d thnn_conv2d vdot""",
    ),
    _dtype_rule(
        "float64-elementwise",
        "these elementwise operators have no float64",
        _FLOAT64,
        """addcdiv atan2 ceil clamp copysign cos div erfc erfinv exp2 fmod lerp log1p logit mul nan_to_num neg
        reciprocal remainder rsqrt sigmoid sign sin tanh trunc xlogy maximum minimum""",
        warns=True,
    ),
    _dtype_rule(
        "float64-reduction",
        "these reductions, scans and orderings have no float64",
        _FLOAT64,
        "amax amin cumsum kthvalue linalg_vector_norm logsumexp max mean median min norm prod sort var var_mean",
        warns=True,
    ),
    _dtype_rule(
        "float64-layers",
        "activations, normalisations, embeddings and losses have no float64",
        _FLOAT64,
        """_log_softmax binary_cross_entropy embedding gelu hardsigmoid hardswish mish mse_loss
        native_batch_norm native_group_norm native_layer_norm nll_loss_forward relu silu smooth_l1_loss softplus""",
    ),
    _dtype_rule(
        "float64-indexing",
        "these gathers and scatters have no float64",
        _FLOAT64,
        "gather index_add index_copy index_select masked_select nonzero repeat_interleave roll take tril triu",
        warns=True,
    ),
    _dtype_rule(
        "complex-matmul",
        "matrix products and attention have no complex numbers",
        _COMPLEX,
        "addbmm addmm addmv baddbmm bmm dot linear matmul mm mv scaled_dot_product_attention vdot",
    ),
    _dtype_rule(
        "complex-arithmetic",
        "these operators have no complex numbers",
        _COMPLEX,
        """add addcdiv addcmul cat cumprod div floor_divide lerp masked_select pow roll sinh sqrt stack sub sum tanh
        tril triu where""",
        warns=True,
    ),
    _dtype_rule(
        "complex-indexing",
        "indexing has no complex numbers",
        _COMPLEX,
        "gather index index_add index_copy index_select take",
        "vllm-project/vllm-omni#4911: 'aclnnIndex does not support DT_COMPLEX64'; " + _LISTS,
    ),
    Rule(
        "mask-shape",
        "a bool attention mask must be (B,N,S,T), (B,1,S,T), (1,1,S,T) or (S,T); nothing is broadcast",
        "op-plugin's documentation of npu_fusion_attention; huggingface/diffusers#13490. Newer op-plugin expands masks "
        "in scaled_dot_product_attention itself; torch_npu 2.7.1.post2 does not",
        "rules.cpp, check_attention; npu_attention.py, check_mask",
    ),
    Rule(
        "mask-dtype",
        "npu_fusion_attention takes masks of bool or uint8 only",
        "op-plugin's documentation of npu_fusion_attention",
        "npu_attention.py, check_mask",
    ),
    Rule(
        "reduce-dtype",
        "HCCL reduces int8, int16, int32, int64, fp16, fp32 and bf16; no product of int16 and bf16",
        "HCCL API reference, HcclAllReduce on Atlas A2",
        "hccl_reduce.c",
    ),
    Rule(
        "collective-match",
        "all ranks must call the same collective with the same dtype, count, root and reduction (EI0005)",
        "CANN's error EI0005",
        "hccl_comm.c, compare",
        always=True,
    ),
    Rule(
        "one-rank-per-device",
        "two ranks of a communicator cannot use one device (EI0004)",
        "seen on real 910B servers: 'hcom init failed: rank 8 assigned to same device as rank 0'",
        "hccl_comm.c, shared_device",
        always=True,
    ),
    Rule(
        "cpu-tensor-in-collective",
        "a collective over hccl takes no CPU tensor: 'No backend type associated with device type cpu'",
        "torch.distributed itself",
        "torch",
        always=True,
    ),
    Rule(
        "one-device",
        "the tensors of an operator must be on one device, apart from CPU scalars and indices",
        "torch_npu: 'Expected all tensors to be on the same device'",
        "aliases.cpp, check_devices",
        always=True,
    ),
    Rule(
        "generator-device",
        "drawing on an NPU needs an NPU generator",
        "torch: at::check_generator",
        "aliases.cpp, check_devices",
        always=True,
    ),
    Rule(
        "fork",
        "a child of os.fork() cannot use a device that its parent had initialised",
        "torch_npu: 'Cannot re-initialize NPU in forked subprocess'; contexts of CANN are not inherited",
        "faults.c, sim_gate",
        always=True,
    ),
)


def install(bridged: set[str]) -> None:
    """Tell the bridge the rules about dtypes, for all forms of each operator."""
    import torch

    from vla_backend_ascend.cann_sim.meaning import SCALAR_TYPES

    number = {name: index for index, name in SCALAR_TYPES.items()}
    forms: dict[str, list[str]] = {}
    for name in bridged:
        base = name.partition(".")[0]
        for stem in {base, base[:-1] if base.endswith("_") else base}:
            forms.setdefault(stem, []).append(name)
    for rule in RULES:
        mask = sum(1 << number[dtype] for dtype in rule.dtypes)
        for operator in rule.operators:
            for name in forms.get(operator, ()):
                torch.ops.cann_sim.add_rule(name, mask, not rule.warns, f"{rule.says} [{rule.id}; {rule.source}]")


def table() -> str:
    """The rules as a Markdown table."""
    lines = ["| rule | what is refused | source |", "|---|---|---|"]
    for rule in RULES:
        operators = f": {', '.join(rule.operators)}" if rule.operators else ""
        mark = " (always)" if rule.always else " (warns)" if rule.warns else ""
        lines.append(f"| {rule.id}{mark} | {rule.says}{operators} | {rule.source} |")
    return "\n".join(lines)


def main(page: str) -> None:
    """Write the table into a page between its markers."""
    path = Path(page)
    before, _, rest = path.read_text().partition("<!-- rules -->\n")
    _, _, after = rest.partition("<!-- /rules -->")
    path.write_text(f"{before}<!-- rules -->\n{table()}\n<!-- /rules -->{after}")


if __name__ == "__main__":
    main(sys.argv[1])
