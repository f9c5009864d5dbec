"""Operators of the unmodified torch_npu on the simulated CANN give the CPU's values and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.ascend_sim
T = torch.Tensor


def leaves(inputs: tuple[T, ...], device: str) -> list[T]:
    return [i.detach().clone().to(device).requires_grad_(i.is_floating_point()) for i in inputs]


def assert_same(function: Callable[..., T], *inputs: T, tolerance: float = 1e-5) -> None:
    on_npu = copy.deepcopy(function).npu() if isinstance(function, nn.Module) else function
    host, device = leaves(inputs, "cpu"), leaves(inputs, "npu")
    expected, got = function(*host), on_npu(*device)
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=tolerance)
    expected.float().pow(2).sum().backward()
    got.float().pow(2).sum().backward()
    pairs = [(a, b) for a, b in zip(host, device, strict=True) if a.grad is not None]
    if isinstance(function, nn.Module):
        pairs += list(zip(function.parameters(), on_npu.parameters(), strict=True))
    assert pairs
    for a, b in pairs:
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=0, atol=tolerance)


def randn(*shape: int) -> T:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


LAYERS = {
    "linear": (nn.Linear(8, 4), (randn(3, 8),)),
    "linear 3d": (nn.Linear(8, 4), (randn(2, 3, 8),)),
    "layer norm": (nn.LayerNorm(8), (randn(3, 8),)),
    "rms norm": (nn.RMSNorm(8), (randn(3, 8),)),
    "group norm": (nn.GroupNorm(2, 4), (randn(2, 4, 3, 3),)),
    "conv3d": (nn.Conv3d(3, 4, 2, stride=2), (randn(2, 3, 4, 4, 4),)),
    "conv2d": (nn.Conv2d(3, 4, 3), (randn(2, 3, 8, 8),)),
    "embedding": (nn.Embedding(10, 4), (torch.tensor([1, 2, 3]),)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (randn(2, 5, 8),)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    layer, inputs = LAYERS[name]
    assert_same(layer, *inputs, tolerance=1e-4)


def mixture(x: T) -> T:
    index = torch.zeros(3, 2, dtype=torch.long, device=x.device)
    out = x.gather(1, index) + F.one_hot(torch.tensor([0, 1, 0], device=x.device), 2)
    out = out + torch.roll(x, 1, 0)[:, :2] + F.pad(x, (1, 1))[:, :2] + x[:, index[:, 0]][:, :2]
    return out + torch.zeros_like(x).scatter_add(1, torch.zeros(3, 4, dtype=torch.long, device=x.device), x)[:, :2]


def losses(x: T) -> T:
    zero = torch.zeros_like(x)
    target = torch.zeros(3, dtype=torch.long, device=x.device)
    return F.mse_loss(x, zero) + F.smooth_l1_loss(x, zero) + F.cross_entropy(x, target)


FUNCTIONS = {
    "activations": (lambda x: F.silu(F.gelu(x)) + F.gelu(x, approximate="tanh") + x.softmax(-1), (randn(3, 4),)),
    "matmul": (lambda a, b: a @ b, (randn(2, 3, 4, 5), randn(2, 3, 5, 4))),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (randn(2, 3, 4), randn(2, 4, 3))),
    "gather scatter pad": (mixture, (randn(3, 4),)),
    "losses": (losses, (randn(3, 4),)),
    "interpolate": (lambda x: F.interpolate(x, size=(8, 8), mode="bilinear"), (randn(1, 2, 4, 4),)),
    "sdpa": (F.scaled_dot_product_attention, (randn(2, 2, 5, 8),) * 3),
    "sdpa causal": (lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True), (randn(2, 2, 5, 8),) * 3),
    "views": (lambda x: (x.t()[1:] * 2).flatten().unflatten(0, (3, 3)).permute(1, 0).contiguous(), (randn(3, 4),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    function, inputs = FUNCTIONS[name]
    assert_same(function, *inputs, tolerance=1e-4)


def test_creation_and_in_place() -> None:
    x = torch.arange(6, device="npu", dtype=torch.float32).reshape(2, 3)
    x[0, 1:] = 7
    x[x < 4] = -1
    x.add_(1).masked_fill_(x > 6, 0)
    assert x.tolist() == [[0, 0, 0], [0, 5, 6]]
    out = torch.empty(0, device="npu")
    torch.add(x, 1, out=out)  # the kernel resizes it
    assert out.tolist() == [[1, 1, 1], [1, 6, 7]]
    assert "npu:0" in repr(x)


@pytest.mark.parametrize("function", [torch.zeros_like, torch.ones_like, torch.rand_like, torch.empty_like])
def test_like_an_npu_tensor_yet_elsewhere(function: Callable[..., T]) -> None:
    x = torch.arange(6, device="npu", dtype=torch.float32).reshape(2, 3)
    for device in ("cpu", "meta", "npu:0"):
        assert (function(x, device=device).device, function(x, device=device).shape) == (torch.device(device), x.shape)
    assert function(x, device="cpu", pin_memory=True).is_pinned()


def test_torch_npu_narrows_float64() -> None:
    """Its own conversions do, and DeepSpeed's norms rely on it: HCCL reduces no float64."""
    x = torch.ones(2, 2, device="npu", requires_grad=True)
    wide = torch.ones(2, dtype=torch.float64, device="npu")
    assert [y.dtype for y in (x.double(), x.to(torch.float64), x.type(torch.float64))] == [torch.float32] * 3
    # Made so, or with the device named, it stays.
    assert [y.dtype for y in (wide, x.to(wide), x.to("npu:0", torch.float64))] == [torch.float64] * 3
    x.to(torch.bfloat16).float().sum().backward()
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_adamw(options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    host = nn.Linear(4, 4)
    device = copy.deepcopy(host).npu()
    x = randn(5, 4)
    for model, input_, kwargs in ((host, x, {}), (device, x.npu(), options)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **kwargs)
        for _ in range(3):
            optimizer.zero_grad()
            model(input_).pow(2).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    torch.testing.assert_close(device.weight.cpu(), host.weight, rtol=0, atol=1e-6)


def test_autocast_uses_torch_npus_own_lists() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)).npu()
    with torch.autocast("npu", dtype=torch.bfloat16):
        first = model[0](torch.randn(3, 8, device="npu"))
        normal = model[1](first)
        out = model(torch.randn(3, 8, device="npu"))
    assert (first.dtype, normal.dtype, out.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)
    out.float().sum().backward()
    assert model[0].weight.grad.dtype == torch.float32


def test_npu_rms_norm_keeps_the_input_dtype() -> None:
    import torch_npu

    x, gamma = randn(2, 8).bfloat16(), randn(8)
    got, rstd = torch_npu.npu_rms_norm(x.npu(), gamma.npu(), epsilon=1e-5)
    assert (got.dtype, rstd.dtype) == (torch.bfloat16, torch.float32)
    expected = F.rms_norm(x.float(), (8,), gamma, 1e-5).bfloat16()
    torch.testing.assert_close(got.cpu(), expected)

    def norm(x: T, gamma: T) -> T:
        return torch_npu.npu_rms_norm(x, gamma)[0] if x.device.type == "npu" else F.rms_norm(x, (8,), gamma, 1e-6)

    assert_same(norm, randn(3, 8), randn(8))


def test_npu_rotary_mul_and_swiglu() -> None:
    import torch_npu

    def rotary(x: T, cos: T, sin: T) -> T:
        if x.device.type == "npu":
            return torch_npu.npu_rotary_mul(x, cos, sin)
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    assert_same(rotary, randn(2, 3, 5, 8), randn(1, 1, 5, 8), randn(1, 1, 5, 8))

    def swiglu(x: T) -> T:
        if x.device.type == "npu":
            return torch_npu.npu_swiglu(x)
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value

    assert_same(swiglu, randn(3, 8))


@pytest.mark.parametrize(("layout", "kv_heads"), [("BNSD", 4), ("BSH", 4), ("BSND", 2), ("SBH", 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_npu_fusion_attention(layout: str, kv_heads: int, causal: bool) -> None:
    import torch_npu

    to_layout = {
        "BNSD": lambda t: t,
        "BSND": lambda t: t.transpose(1, 2),
        "BSH": lambda t: t.transpose(1, 2).flatten(2),
        "SBH": lambda t: t.permute(2, 0, 1, 3).flatten(2),
    }[layout]
    q, k, v = randn(2, 4, 5, 8), randn(2, kv_heads, 5, 8), randn(2, kv_heads, 5, 8)
    host = leaves((q, k, v), "cpu")
    expected = F.scaled_dot_product_attention(*host, is_causal=causal, enable_gqa=True)
    expected.pow(2).sum().backward()
    device = leaves((to_layout(q).contiguous(), to_layout(k).contiguous(), to_layout(v).contiguous()), "npu")
    mask = torch.ones(2048, 2048, dtype=torch.bool, device="npu").triu(1) if causal else None
    got = torch_npu.npu_fusion_attention(
        *device, 4, layout, atten_mask=mask, scale=8**-0.5, sparse_mode=2 if causal else 0
    )[0]
    got.pow(2).sum().backward()
    torch.testing.assert_close(got.cpu(), to_layout(expected).detach(), rtol=0, atol=1e-5)
    for a, b in zip(host, device, strict=True):
        torch.testing.assert_close(b.grad.cpu(), to_layout(a.grad), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["npu::npu_geglu", "aten::_thnn_fused_lstm_cell", "aten::batch_norm_stats"])
def test_unknown_operator_fails_by_name(name: str) -> None:
    import torch_npu

    calls = {
        "npu::npu_geglu": lambda: torch_npu.npu_geglu(torch.ones(2, 4, device="npu")),
        "aten::_thnn_fused_lstm_cell": lambda: nn.LSTM(4, 5).npu()(torch.ones(3, 2, 4, device="npu")),
        "aten::batch_norm_stats": lambda: torch.batch_norm_stats(torch.ones(2, 3, 4, device="npu"), 1e-5),
    }
    # Under torch 2.7 torch itself refuses an operator without a kernel for the CPU.
    with pytest.raises(NotImplementedError, match=f"operator {name} is not simulated|Could not run '{name}'"):
        calls[name]()
