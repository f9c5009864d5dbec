"""What a 910B refuses is refused, by name and with a source; `--rules warn` only warns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from vla_backend_ascend.cann_sim import rules

pytestmark = pytest.mark.ascend_sim


def float64(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.float64, device="npu")


def complex64(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.complex64, device="npu")


def attention(mask: torch.Tensor) -> torch.Tensor:
    q = torch.ones(2, 3, 5, 8, device="npu")
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def fused_attention(mask: torch.Tensor) -> torch.Tensor:
    import torch_npu

    q = torch.ones(2, 3, 5, 8, device="npu")
    return torch_npu.npu_fusion_attention(q, q, q, 3, "BNSD", atten_mask=mask)[0]


def mask(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.bool, device="npu")


REFUSED = {
    "float64-matmul": [
        lambda: float64(2, 2) @ float64(2, 2),
        lambda: F.linear(float64(2, 2), float64(2, 2)),
        lambda: F.conv2d(float64(1, 1, 4, 4), float64(1, 1, 2, 2)),
    ],
    "float64-layers": [
        lambda: F.gelu(float64(2)),
        lambda: F.layer_norm(float64(2, 2), (2,)),
        lambda: F.relu(float64(2)),
    ],
    "complex-matmul": [lambda: complex64(2, 2) @ complex64(2, 2)],
    "complex-indexing": [lambda: complex64(2)[torch.tensor([0], device="npu")]],
    "mask-shape": [lambda: attention(mask(2, 1, 1, 5)), lambda: attention(mask(1, 5))],
    "atten_mask shape": [lambda: fused_attention(mask(2, 1, 1, 5))],
    "atten_mask dtype": [lambda: fused_attention(mask(5, 5).float())],
}
CASES = [(says, call) for says, calls in REFUSED.items() for call in calls]


@pytest.mark.parametrize(("says", "call"), CASES)
def test_refused(says: str, call) -> None:
    with pytest.raises(RuntimeError, match=says) as caught:
        call()
    assert "simulated CANN refuses" in str(caught.value)


WARNED = {
    "float64-elementwise": [lambda: float64(2).cos(), lambda: float64(2).neg_(), lambda: float64(2).fmod(float64(2))],
    "float64-reduction": [lambda: float64(2).mean(), lambda: float64(2).cumsum(0), lambda: float64(2).sort()],
    "float64-indexing": [lambda: float64(2).gather(0, torch.tensor([0], device="npu"))],
    "complex-arithmetic": [lambda: complex64(2) + complex64(2), lambda: torch.cat([complex64(2), complex64(2)])],
}


@pytest.mark.parametrize(("says", "call"), [(says, call) for says, calls in WARNED.items() for call in calls])
def test_warned(says: str, call) -> None:
    with pytest.warns(UserWarning, match=f"a 910B may refuse.*{says}"):
        call()


def test_attention_mask_in_inference_mode() -> None:
    with torch.inference_mode(), pytest.raises(RuntimeError, match="mask-shape"):
        attention(mask(2, 1, 1, 5))


ACCEPTED = {
    "float64 is stored": lambda: float64(2).cpu(),
    "float64 becomes float32": lambda: float64(2).to(torch.float32) @ torch.ones(2, device="npu"),
    "a python number is no float64": lambda: torch.ones(2, device="npu") / 3.0,
    "complex rotary": lambda: torch.view_as_real(complex64(2) * complex64(2)),
    "expanded mask": lambda: attention(mask(2, 1, 1, 5).expand(2, 1, 5, 5)),
    "additive mask": lambda: attention(torch.zeros(2, 1, 1, 5, device="npu")),
    "square mask": lambda: fused_attention(~mask(5, 5)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    ACCEPTED[name]()


def test_mixed_devices() -> None:
    x = torch.ones(2, device="npu:0")
    with pytest.raises(RuntimeError, match="on the same device"):
        x + torch.ones(2)
    with pytest.raises(RuntimeError, match="on the same device"):
        x + torch.ones(2, device="npu:1")
    assert (x + torch.tensor(1.0)).tolist() == [2, 2]
    assert x[torch.tensor([0])].tolist() == [1]


def test_generator_of_the_host() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator but found 'cpu'"):
        torch.randn(3, device="npu", generator=torch.Generator().manual_seed(1))


def test_warn_only(simulate) -> None:
    program = """
import torch
x = torch.ones(2, 2, dtype=torch.float64, device="npu")
print((x @ x).tolist())
"""
    done = simulate(program, options=("--rules", "warn"))
    assert done.stdout.strip() == "[[2.0, 2.0], [2.0, 2.0]]"
    assert "a 910B may refuse: mm on Double" in done.stderr


def test_every_rule_has_a_source_and_stands_in_the_table() -> None:
    table = rules.table()
    for rule in rules.RULES:
        assert rule.source
        assert f"| {rule.id}" in table
    dtype_rules = {rule.id for rule in rules.RULES if rule.dtypes}
    assert dtype_rules <= {*REFUSED, *WARNED}


def test_the_documentation_prints_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ascend_simulation.md").read_text()
    printed = page.partition("<!-- rules -->\n")[2].partition("\n<!-- /rules -->")[0]
    assert printed == rules.table(), "python -m vla_backend_ascend.cann_sim.rules docs/ascend_simulation.md"
