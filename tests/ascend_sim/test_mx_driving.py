"""mx_driving's own patches, where it is installed: its releases are for Python up to 3.11 and torch 2.6 to 2.8."""

from __future__ import annotations

import pytest

from vla_backend.installed import package_folder

pytestmark = [
    pytest.mark.ascend_sim,
    pytest.mark.skipif(package_folder("mx_driving") is None, reason="mx_driving is not installed: make test-ascend-27"),
]
PROGRAM = """
import torch
from vla_backend import activate
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3 import modeling_qwen3

def loss_and_gradient(device):
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64)
    config._attn_implementation = "sdpa"
    model = Qwen3ForCausalLM(config).to(device)
    ids = torch.arange(20, device=device).reshape(2, 10)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item(), model.model.layers[0].self_attn.q_proj.weight.grad.cpu()

expected, gradient = loss_and_gradient("cpu")
cuda = torch.cuda.is_available
backend = activate("ascend")
backend.load_stack()
backend.local_device(0)
for report in backend.apply_patches():
    print("applied" if report.applied else "not applied", report.name, "|", report.detail)
assert torch.cuda.is_available is cuda
got, theirs = loss_and_gradient("npu")
assert abs(got - expected) < 1e-5, (got, expected)
torch.testing.assert_close(theirs, gradient, rtol=0, atol=1e-6)
print("rotary", modeling_qwen3.apply_rotary_pos_emb.__module__)
"""


def test_patched_model_equals_the_cpu(simulate) -> None:
    done = simulate(PROGRAM)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = done.stdout.splitlines()
    applied = [line for line in lines if line.startswith("applied mx_driving")]
    assert any("qwen3.apply_rotary_pos_emb" in line.replace("modeling_qwen3", "qwen3") for line in applied), lines
    assert any(line.startswith("rotary mx_driving") for line in lines)
    refused = [line for line in lines if line.startswith("not applied mx_driving")]
    assert len(refused) >= 5
    assert all(line.split("|")[1].strip() for line in refused)
