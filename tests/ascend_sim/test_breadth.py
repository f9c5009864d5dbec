"""What programs around training use of torch and torch_npu, each once: it works on the simulated CANN as on the CPU."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.ascend_sim.test_operators import assert_same, randn

pytestmark = pytest.mark.ascend_sim
N = "npu"


def test_creation() -> None:
    assert torch.linspace(0, 1, 5, device=N).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert torch.eye(2, device=N).tolist() == [[1, 0], [0, 1]]
    assert sorted(torch.randperm(5, device=N).tolist()) == [0, 1, 2, 3, 4]
    assert set(torch.randint(3, 5, (50,), device=N).tolist()) == {3, 4}
    assert torch.full((2,), 7, device=N).tolist() == torch.zeros_like(torch.ones(2, device=N)).add(7).tolist()
    assert torch.rand(3, device=N)[None].expand(4, 3).contiguous().shape == (4, 3)


def test_selection_and_order() -> None:
    x = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    y = x.npu()
    for function in (
        lambda t: t.topk(2).values, lambda t: t.sort().indices, lambda t: t.argmax(1), lambda t: t.cumsum(0),
        lambda t: (t > 1).nonzero(), lambda t: t.unique(), lambda t: torch.where(t > 2, t, -t),
        lambda t: t[torch.tensor([1, 0])], lambda t: torch.nan_to_num(t / 0), lambda t: torch.stack([t, t]).flip(0),
    ):  # fmt: skip
        torch.testing.assert_close(function(y).cpu(), function(x))
    assert bool((y > 4).any())


FUNCTIONS = {
    "losses": lambda x: F.l1_loss(x, x * 0.5) + F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "log softmax": lambda x: F.log_softmax(x, -1),
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "roll": lambda x: torch.roll(x, 1, 0),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "masked attention": lambda x: F.scaled_dot_product_attention(
        *(x.reshape(1, 1, 4, 8),) * 3, attn_mask=torch.ones(4, 4, dtype=torch.bool, device=x.device).tril()
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    assert_same(FUNCTIONS[name], randn(4, 8), tolerance=1e-4)


def test_complex_rotation() -> None:
    def rotate(x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(
            torch.arange(4, device=x.device).float(), 10.0 ** -torch.arange(4, device=x.device).float()
        )
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2)

    assert_same(rotate, randn(4, 8))


def test_dropout_scales_what_it_keeps() -> None:
    torch.npu.manual_seed(0)
    x = torch.ones(1000, device=N, requires_grad=True)
    y = nn.Dropout(0.5)(x)
    y.sum().backward()
    assert set(y.tolist()) == {0.0, 2.0}
    assert 700 < y.sum().item() < 1300
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_repeats_the_same_dropout(reentrant: bool) -> None:
    layer = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.3), nn.Linear(64, 2)).npu()
    x = torch.randn(2, 4, device=N, requires_grad=True)
    seen: list[torch.Tensor] = []
    layer[1].register_forward_hook(lambda *parts: seen.append(parts[2].detach().clone()))
    checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    first, again = seen
    assert torch.equal(first, again)


@pytest.mark.parametrize("make", [lambda: torch.amp.GradScaler(N), lambda: torch.npu.amp.GradScaler()])
def test_fp16_with_a_scaler(make) -> None:
    scaler, model = make(), nn.Linear(4, 4).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    with torch.autocast(N, dtype=torch.float16):
        loss = model(torch.ones(2, 4, device=N)).float().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(model.weight.detach(), before - 0.1 / 4, rtol=0, atol=1e-3)


def test_autocast_default_is_half() -> None:
    with torch.autocast(N):
        assert (torch.ones(2, 2, device=N) @ torch.ones(2, 2, device=N)).dtype == torch.get_autocast_dtype(N)
    assert torch.get_autocast_dtype(N) == torch.float16


def test_torch_npus_fused_adamw() -> None:
    import torch_npu

    torch.manual_seed(0)
    host, device = nn.Linear(4, 4), nn.Linear(4, 4).npu()
    device.load_state_dict(host.state_dict())
    for model, kind, x in (
        (host, torch.optim.AdamW, torch.ones(3, 4)),
        (device, torch_npu.optim.NpuFusedAdamW, torch.ones(3, 4, device=N)),
    ):
        optimizer = kind(model.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(device.weight.cpu(), host.weight, rtol=0, atol=1e-6)


def test_settings_and_casts() -> None:
    import torch_npu

    torch.npu.set_compile_mode(jit_compile=False)
    assert torch.npu.is_jit_compile_false()
    torch.npu.config.allow_internal_format = False
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.ones(3, device=N).dot(torch.ones(3, device=N)).item() == 3
    finally:
        torch.use_deterministic_algorithms(False)
    x = torch.ones(2, 2, device=N)
    assert torch_npu.npu_dtype_cast(x, torch.float16).dtype == torch.float16
    assert torch_npu.npu_format_cast(x, 29).shape == (2, 2)


def test_compile_eager_and_profilers() -> None:
    assert torch.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(2, device=N)).tolist() == [3, 3]
    with torch.profiler.profile() as profile:
        torch.ones(3, device=N).add(1)
    assert [event for event in profile.events() if "add" in event.name]


def test_a_thread_uses_the_device() -> None:
    found: list[list[float]] = []
    thread = threading.Thread(target=lambda: found.append((torch.ones(2, device=N) + 1).tolist()))
    thread.start()
    thread.join()
    assert found == [[2, 2]]


def test_gru_is_refused_by_name() -> None:
    """LSTM and SyncBatchNorm are in test_operators.py."""
    with pytest.raises(NotImplementedError, match="is not simulated"):
        nn.GRU(4, 5).npu()(torch.ones(3, 2, 4, device=N))


STAND_IN = """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
x = torch.ones(3).cuda()
with torch.autocast("cuda", torch.bfloat16):
    product = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
print(x.device, torch.cuda.is_available(), torch.cuda.device_count(), product.dtype)
"""


def test_torch_npus_stand_in_for_cuda(simulate) -> None:
    """What programs do that were written for CUDA; nothing here uses it."""
    done = simulate(STAND_IN)
    assert done.stdout.split() == ["npu:0", "True", "1", "torch.bfloat16"], done.stderr[-2000:]
