"""Ascend's answers with torch and a stand-in for torch_npu, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FAKES = Path(__file__).parent / "fakes"

WALK = """
import os, sys
from vla_backend import AttentionNeeds, PatchReport, activate
from vla_backend.errors import PhaseError, UnsupportedError

backend = activate("ascend", check_available=False)
try:
    backend.synchronize()
except PhaseError:
    pass
else:
    raise AssertionError("a device call before the device was accepted")
stack = backend.load_stack()
import torch, torch_npu
assert stack == (f"torch {torch.__version__}", "torch_npu 2.13.0"), stack
assert torch_npu.TORCH_FIRST
assert torch_npu.AUTOLOAD == "0"
assert "torch_npu.contrib.transfer_to_npu" not in sys.modules
assert not torch.npu.is_initialized()

# Everything of the phase pre-init leaves the NPU untouched.
assert backend.compute_dtype("bf16") is torch.bfloat16
assert backend.compute_dtype("fp32") is torch.float32
assert backend.safe_dtype(torch.float64) is torch.float32
assert backend.safe_dtype(torch.complex128) is torch.complex64
for dtype in (torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.uint8, torch.complex64):
    assert backend.safe_dtype(dtype) is dtype
assert backend.sampling_device("beta", torch.device("npu", 0)) == torch.device("cpu")
assert backend.attention_impl(AttentionNeeds()) == "sdpa"
assert backend.attention_impl(AttentionNeeds(mask="bool", causal=True, dropout=True)) == "sdpa"
assert backend.attention_impl(AttentionNeeds(mask="additive")) == "eager"
assert backend.fused_optimizer("AdamW").path == "torch.optim:AdamW"
assert backend.matmul_precision("default") == {}
assert (torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32) == (False, True)
made = backend.matmul_precision("highest")
assert (torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32) == (False, False)
assert made["conv.allow_hf32"] == "False"
backend.matmul_precision("high")
assert (torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32) == (True, True)
(report,) = backend.apply_patches()
assert report.name == "mx_driving" and not report.applied and "not installed" in report.detail
assert not torch.npu.is_initialized()

try:
    backend.local_device(2)
except RuntimeError as error:
    assert "local rank 2 has no device of its own: 2 visible" in str(error)
else:
    raise AssertionError("a rank without a device was accepted")
device = backend.local_device(1)
assert device == torch.device("npu", 1) and torch.npu.calls[-1] == ("set_device", 1)
assert backend.autocast_device == "npu"
with backend.fp32_region():
    assert not torch.is_autocast_enabled("npu")
with torch.autocast("npu", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled("npu")
    with backend.fp32_region():
        assert not torch.is_autocast_enabled("npu")
    with backend.autocast(torch.float32):
        assert not torch.is_autocast_enabled("npu")
with backend.autocast(torch.bfloat16):
    assert torch.is_autocast_enabled("npu") and torch.get_autocast_dtype("npu") is torch.bfloat16

assert backend.collective_device == device
stats = backend.memory_stats(reset_peak=True)
assert (stats.allocated, stats.reserved, stats.peak, stats.total) == (10, 20, 30, 64 * 2**30)
assert torch.npu.calls[-1] == ("reset_peak_memory_stats", device)
backend.synchronize()
assert torch.npu.calls[-1] == ("synchronize", device)
state = backend.rng_state()
assert set(state) == {"cpu", "npu"} and all(value.device.type == "cpu" for value in state.values())
torch.npu._state["rng"] = torch.zeros(16, dtype=torch.uint8)
backend.set_rng_state(state)
assert torch.equal(torch.npu._state["rng"], state["npu"])
model = torch.nn.Linear(2, 2)
with backend.evaluating(model):
    assert not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
assert backend.to_numpy(torch.ones(2, dtype=torch.bfloat16)).dtype == "float32"

torch.npu._state["bf16"] = False
try:
    backend.compute_dtype("bf16")
except UnsupportedError as error:
    assert "no bfloat16" in error.why
else:
    raise AssertionError("bf16 was accepted on an NPU without it")
assert backend.compute_dtype("fp16") is torch.float16
print("walked")
"""


def python(code: str, *paths: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    clean |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), **env}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean)


def test_every_phase() -> None:
    done = python(WALK, FAKES)
    assert done.stdout == "walked\n", done.stderr


def test_a_broken_torch_npu_is_explained(tmp_path) -> None:
    package = tmp_path / "torch_npu"
    package.mkdir()
    message = "libascend_hal.so: cannot open shared object file: No such file or directory"
    (package / "__init__.py").write_text(f"raise ImportError({message!r})\n")
    code = (
        "from vla_backend import activate\n"
        "from vla_backend.errors import BackendUnavailable\n"
        "try:\n    activate('ascend', check_available=False).load_stack()\n"
        "except BackendUnavailable as error:\n"
        "    print(error.why, '|', error.fix, '|', type(error.__cause__).__name__)\n"
    )
    done = python(code, tmp_path)
    why, fix, cause = done.stdout.split(" | ")
    assert message in why
    assert "mount" in fix.lower()
    assert cause.strip() == "ImportError"
