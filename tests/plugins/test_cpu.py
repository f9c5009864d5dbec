from __future__ import annotations

import sys
import types

import pytest
import torch

from vla_backend import AttentionNeeds, activate
from vla_backend.errors import UnsupportedError
from vla_backend_cpu import machine


@pytest.fixture
def backend():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


def test_probe_is_shared(backend) -> None:
    probe = backend.probe({})
    assert probe.ok
    assert probe.shared
    assert torch.__version__ in probe.reason


def test_values(backend) -> None:
    assert (backend.device_type, backend.dist_backend, backend.autocast_device) == ("cpu", "gloo", "cpu")
    assert backend.pin_memory_ok is False
    assert backend.visible_devices_env == ""
    assert backend.video_ctx.decoders[0] == "pyav"
    assert backend.attention_impl(AttentionNeeds(mask="additive")) == "sdpa"
    assert backend.load_stack() == (f"torch {torch.__version__}",)


def test_fp16_is_refused_with_a_reason(backend) -> None:
    assert backend.compute_dtype("bf16") is torch.bfloat16
    assert backend.compute_dtype("fp32") is torch.float32
    with pytest.raises(UnsupportedError, match="loss scaling"):
        backend.compute_dtype("fp16")
    issues = backend.check_config({"parallel": {"mixed_precision": "fp16"}}, {})
    assert [(issue.level, issue.key) for issue in issues] == [("error", "parallel.mixed_precision")]


def test_bf16_without_instructions_is_a_warning(backend, monkeypatch, tmp_path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "CPUINFO", cpuinfo)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    config = {"parallel": {"mixed_precision": "bf16"}}
    cpuinfo.write_text("processor : 0\nflags : fpu avx2\n")
    assert [issue.level for issue in backend.check_config(config, {})] == ["warning"]
    cpuinfo.write_text("processor : 0\nflags : fpu avx512f avx512_bf16\n")
    assert backend.check_config(config, {}) == []
    cpuinfo.write_text("processor : 0\nFeatures : fp asimd bf16\n")
    assert backend.check_config(config, {}) == []


def test_other_accelerators_are_hidden(backend) -> None:
    env = backend.env_defaults({}, {})
    assert env["CUDA_VISIBLE_DEVICES"] == env["ASCEND_RT_VISIBLE_DEVICES"] == ""
    assert env["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"


def test_more_processes_than_processors_is_a_warning(backend, monkeypatch) -> None:
    monkeypatch.setattr(machine, "usable_cpus", lambda: 8)
    assert backend.check_config({"parallel": {"processes": 9}}, {})[0].level == "warning"
    assert backend.check_config({"parallel": {"processes": 8}}, {}) == []


def test_workers_leave_the_processors_to_the_trainer() -> None:
    from vla_backend_cpu.data import dataloader_defaults

    assert [dataloader_defaults(cpus).num_workers for cpus in (1, 2, 4, 8, 64)] == [0, 0, 1, 2, 4]
    # A DataLoader without workers refuses persistent ones.
    assert dataloader_defaults(2).num_workers == 0
    assert dataloader_defaults(8).num_workers == 2
    assert dataloader_defaults(8).start_method == "spawn"


def test_memory_stats_follow_the_process(backend) -> None:
    before = backend.memory_stats(reset_peak=True)
    assert 0 < before.allocated <= before.peak <= before.total
    block = torch.ones(64 * 2**20, dtype=torch.uint8)
    during = backend.memory_stats()
    assert during.allocated >= before.allocated + 48 * 2**20
    del block
    # The kernel counts in batches of pages.
    assert backend.memory_stats().peak >= during.allocated - 4 * 2**20


def test_peak_counts_anew(backend) -> None:
    if not machine.PROC_CLEAR_REFS.exists():
        pytest.skip("only Linux can reset the peak")
    block = torch.ones(96 * 2**20, dtype=torch.uint8)
    high = backend.memory_stats().peak
    del block
    backend.memory_stats(reset_peak=True)
    assert backend.memory_stats().peak <= high - 64 * 2**20


def test_memory_without_proc(backend, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(machine, "PROC_STATUS", tmp_path / "none")
    monkeypatch.setattr(machine, "PROC_CLEAR_REFS", tmp_path / "none" / "none")
    stats = backend.memory_stats(reset_peak=True)
    assert 0 < stats.allocated <= stats.peak


def test_total_is_the_containers(backend, monkeypatch, tmp_path) -> None:
    (tmp_path / "v1").write_text(f"{2**60}\n")
    (tmp_path / "v2").write_text(f"{2**30}\n")
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "v2", tmp_path / "v1"))
    assert backend.memory_stats().total == 2**30
    (tmp_path / "v2").write_text("max\n")
    assert backend.memory_stats().total == machine.total() < 2**60


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "AdamW", "SGD", "RMSprop", "NAdam"])
def test_optimizer_takes_its_options_and_keeps_the_plain_state(backend, name) -> None:
    choice = backend.fused_optimizer(name)
    cls = getattr(torch.optim, choice.path.partition(":")[2])
    start = torch.linspace(-1, 1, 7)

    def train(**kwargs):
        parameter = torch.nn.Parameter(start.clone())
        optimizer = cls([parameter], lr=0.1, **kwargs)
        for _ in range(3):
            parameter.grad = parameter.detach() * 2 + 1
            optimizer.step()
        return parameter.detach(), optimizer.state_dict()

    (ours, state), (plain, plain_state) = train(**choice.kwargs), train()
    assert torch.allclose(ours, plain, atol=1e-6)
    assert {key: set(value) for key, value in state["state"].items()} == {
        key: set(value) for key, value in plain_state["state"].items()
    }


def test_compiler_is_looked_for(monkeypatch, tmp_path) -> None:
    from vla_backend import activate
    from vla_backend.errors import UnsupportedError

    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "mycc")
    assert activate("cpu").compile_backend == "inductor"
    monkeypatch.delenv("CXX")
    with pytest.raises(UnsupportedError, match=r"no.*compiler|C\+\+ compiler"):
        _ = activate("cpu").compile_backend


def test_diffusers_is_kept_off_npu_kernels(backend, monkeypatch, tmp_path) -> None:
    from diffusers.utils import import_utils

    assert backend.apply_patches() == ()
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    monkeypatch.setattr(import_utils, "_torch_npu_available", True)
    assert import_utils.is_torch_npu_available()
    (report,) = backend.apply_patches()
    assert report.applied
    assert not import_utils.is_torch_npu_available()
    monkeypatch.delattr(import_utils, "_torch_npu_available")
    (report,) = backend.apply_patches()
    assert not report.applied
    assert "_torch_npu_available" in report.detail
