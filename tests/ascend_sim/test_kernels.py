"""The NPU's fused operators equal torch's composition, forward and backward, on the simulated CANN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from vla_backend import Backend, FusedKernels, activate
from vla_groot.category import CategoryLinear, Embodiments
from vla_train.nn.kernels import attend, use_kernels

pytestmark = pytest.mark.ascend_sim
T = torch.Tensor
BATCH, HEADS, LENGTH, KEYS, WIDTH = 2, 4, 5, 7, 16


@pytest.fixture(scope="module")
def backend() -> Backend:
    backend = activate("ascend")
    backend.load_stack()
    backend.local_device(0)
    return backend


@pytest.fixture(scope="module")
def kernels(backend: Backend) -> FusedKernels:
    return backend.fused_kernels


@pytest.fixture
def called(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of torch_npu's operators as they are called."""
    import torch_npu

    names: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(torch_npu, name)

        def call(*args: Any, **keywords: Any) -> Any:
            names.append(name)
            return real(*args, **keywords)

        return call

    for name in ("npu_fusion_attention", "npu_rms_norm", "npu_rotary_mul"):
        monkeypatch.setattr(torch_npu, name, counted(name))
    return names


class Gathered(TorchDispatchMode):
    """Shapes of the tensors that are indexed by a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("index", "index_select", "gather", "index_put", "_index_put_impl_"):
            self.shapes.append(tuple(args[0].shape))
        return func(*args, **(kwargs or {}))


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> T:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def both(fused: Callable[..., T], plain: Callable[..., T], inputs: tuple[T, ...], tolerance: float) -> None:
    """Values and gradients of `fused` on the NPU beside those of `plain` on the CPU."""
    device = [tensor.clone().npu().requires_grad_() for tensor in inputs]
    host = [tensor.clone().float().requires_grad_() for tensor in inputs]
    got = fused(*device)
    got.float().pow(2).sum().backward()
    assert got.dtype == inputs[0].dtype
    expected = plain(*host)
    expected.pow(2).sum().backward()
    torch.testing.assert_close(got.float().cpu(), expected.detach(), rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(device, host, strict=True):
        torch.testing.assert_close(mine.grad.float().cpu(), theirs.grad, rtol=4 * tolerance, atol=4 * tolerance)


MASKS = {
    "none": None,
    "columns": torch.ones(BATCH, 1, 1, KEYS, dtype=torch.bool).index_fill(-1, torch.tensor([1, 4]), False),
    "rows of all samples": torch.ones(1, 1, LENGTH, KEYS, dtype=torch.bool).tril(2),
    "heads": randn(BATCH, HEADS, LENGTH, KEYS) > -1.5,
    "square": torch.ones(LENGTH, KEYS, dtype=torch.bool).tril(2),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_attention(kernels: FusedKernels, called: list[str], mask: str, dtype: torch.dtype, tolerance: float) -> None:
    kept = MASKS[mask]
    inputs = tuple(randn(BATCH, HEADS, rows, WIDTH, dtype=dtype) for rows in (LENGTH, KEYS, KEYS))
    both(
        lambda *qkv: kernels.attention(*qkv, None if kept is None else kept.npu()),
        lambda *qkv: functional.scaled_dot_product_attention(*qkv, attn_mask=kept),
        inputs,
        tolerance,
    )
    assert called == ["npu_fusion_attention"]


@pytest.mark.parametrize("case", ["no gradients", "added mask", "grouped heads"])
def test_attention_that_the_operator_is_not_for(kernels: FusedKernels, called: list[str], case: str) -> None:
    """Passes without gradients, additive masks and unequal heads stay with torch's composition."""
    query = randn(BATCH, HEADS, LENGTH, WIDTH)
    key = value = randn(BATCH, 1 if case == "grouped heads" else HEADS, KEYS, WIDTH)
    mask = randn(BATCH, HEADS, LENGTH, KEYS) if case == "added mask" else None
    with torch.set_grad_enabled(case != "no gradients"):
        got = kernels.attention(query.npu(), key.npu(), value.npu(), None if mask is None else mask.npu())
    assert not called
    expected = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_attention_follows_autocast(kernels: FusedKernels) -> None:
    """Normalised queries are float32 under autocast, values bfloat16; attention is in bfloat16, as torch's own."""
    query, key = (randn(BATCH, HEADS, LENGTH, WIDTH).npu().requires_grad_() for _ in range(2))
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert kernels.attention(query, key, key.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
def test_rms_norm(kernels: FusedKernels, called: list[str], dtype: torch.dtype, tolerance: float) -> None:
    both(
        lambda x, weight: kernels.rms_norm(x, weight, 1e-5),
        lambda x, weight: functional.rms_norm(x, (WIDTH,), weight, 1e-5),
        (randn(3, 5, WIDTH, dtype=dtype), randn(WIDTH, dtype=dtype)),
        tolerance,
    )
    assert called == ["npu_rms_norm"]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_rotary(kernels: FusedKernels, called: list[str], dtype: torch.dtype, tolerance: float) -> None:
    angles = torch.outer(torch.arange(LENGTH), 1e4 ** -torch.linspace(0, 1, WIDTH // 2)).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()

    def plain(x: T) -> T:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    both(
        lambda x: kernels.rotary(x, cos.npu(), sin.npu()),
        plain,
        (randn(BATCH, HEADS, LENGTH, WIDTH, dtype=dtype),),
        tolerance,
    )
    assert called == ["npu_rotary_mul"]
    many = randn(1, 1000, 2, WIDTH)
    kernels.rotary(many.npu(), cos[:2].npu(), sin[:2].npu())
    assert called == ["npu_rotary_mul"]


def test_positional_bias_is_scaled_with_the_scores(backend: Backend) -> None:
    """The documented formula: softmax(scale * (pse + query key^T))."""
    import torch_npu

    query, key, bias = randn(1, 2, 3, 8), randn(1, 2, 4, 8), randn(1, 2, 3, 4)
    got = torch_npu.npu_fusion_attention(query.npu(), key.npu(), key.npu(), 2, "BNSD", pse=bias.npu(), scale=0.5)[0]
    expected = ((query @ key.transpose(-1, -2) + bias) * 0.5).softmax(-1) @ key
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_a_model_without_the_switch_composes(backend: Backend, called: list[str]) -> None:
    """`train.fused_kernels=false` gives layers no kernels; a mask of the keys alone is then taken as well."""
    query = randn(BATCH, HEADS, LENGTH, WIDTH).npu().requires_grad_()
    mask = MASKS["columns"].npu()
    plain = attend(FusedKernels(), query, query, query, mask[..., :LENGTH])
    assert not called
    fused = attend(backend.fused_kernels, query, query, query, mask[..., :LENGTH])
    assert called == ["npu_fusion_attention"]
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-5)
    norm = torch.nn.RMSNorm(WIDTH, eps=1e-6).npu()
    assert use_kernels(norm, FusedKernels()) == {}
    assert use_kernels(norm, backend.fused_kernels) == {"rms_norm": 1}


def test_weights_per_embodiment_are_not_gathered(backend: Backend) -> None:
    """Indexed weights copy them once per sample, and their gradient is a slow scatter on NPUs: products per group."""
    torch.manual_seed(0)
    layer, ids = CategoryLinear(6, 8, 4), [5, 2, 5, 0]
    x = randn(4, 3, 8)
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in (layer.W, layer.b))
    expected = torch.einsum("bti,bio->bto", x, weight[ids]) + bias[ids][:, None]
    expected.pow(2).sum().backward()
    layer.npu()
    with Gathered() as seen:
        got = layer(x.npu(), Embodiments(ids, backend.device, 6))
        got.pow(2).sum().backward()
    assert seen.shapes
    assert all(len(shape) == 3 and shape[1] == 3 for shape in seen.shapes), seen.shapes  # samples alone, no weights
    torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.W.grad.cpu(), weight.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.b.grad.cpu(), bias.grad, rtol=1e-5, atol=1e-5)
