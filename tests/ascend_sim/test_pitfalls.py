"""Failures met when models were ported to NPUs, on the simulated CANN: as they were without the guard, and with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from vla_backend import Backend, activate
from vla_train.train.world import World

pytestmark = pytest.mark.ascend_sim
TWO = ("--devices", "2")
#: Programs that import torch_npu through torch, unlike the backend's.
AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    # Set by the backend for its workers; the other tests import torch_npu through torch.
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    backend = activate("ascend")
    backend.load_stack()
    backend.local_device(0)
    return backend


@pytest.fixture
def group() -> Iterator[None]:
    """An HCCL group of one rank."""
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_more_ranks_than_devices(simulate, backend) -> None:
    """A1: ranks that wrap around share an NPU, and HCCL refuses; the launch is refused before, naming both numbers."""
    done = simulate("broken_collective.py", "shared-device", options=TWO, processes=2, env=AUTOLOAD)
    assert "EI0004" in done.stdout, done.stdout + done.stderr[-3000:]
    (message, *_) = re.findall(r"EI0004.*use the same device 0.*", done.stdout)
    known = backend.translate_error(RuntimeError(message))
    assert "parallel.processes" in known.remedy
    assert "同一张卡" in known.chinese
    (issue,) = backend.check_config({"parallel": {"processes": 3}}, os.environ)
    assert (issue.level, issue.key) == ("error", "parallel.processes")
    assert "3 processes for 2 visible NPUs" in issue.message
    assert "parallel.processes" in issue.chinese
    with pytest.raises(RuntimeError, match="local rank 2 has no device of its own: 2 visible"):
        backend.local_device(2)


def test_frozen_encoder_fills_the_card(simulate) -> None:
    """A4: trained along, an encoder takes four times its size and fills the card; frozen once, on the host nothing."""
    done = simulate("frozen_memory.py", "host", "device", "trained", options=("--memory", "0.2"))
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert found["trained"].startswith("out of memory | An NPU ran out of memory."), done.stdout + done.stderr[-3000:]
    assert "NPU 内存耗尽" in found["trained"]
    host, device = (int(found[name].removesuffix(" MB")) for name in ("host", "device"))
    assert host < 10
    assert 60 <= device - host < 90


def test_bfloat16_to_numpy(backend) -> None:
    """A7."""
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, device="npu", requires_grad=True)
    with pytest.raises(TypeError, match="Got unsupported ScalarType BFloat16") as error:
        x.detach().cpu().numpy()
    assert "to_numpy" in backend.translate_error(error.value).remedy
    assert backend.to_numpy(x).tolist() == [1.5, -2.0]


def test_one_rank_is_late(simulate, backend) -> None:
    """A12: a rank that is slow once ends the job where HCCL's time is shorter than the job's; one setting sets both."""
    config = {"parallel": {"dist_timeout": 60}}
    left_over = {"HCCL_EXEC_TIMEOUT": "4"}
    done = simulate("broken_collective.py", "late", options=TWO, processes=2, env=AUTOLOAD | left_over)
    assert "EI0002" in done.stdout, done.stdout + done.stderr[-3000:]
    (message, *_) = re.findall(r"EI0002.*waited 4 s for rank 1 \(alive, not here\).*", done.stdout)
    known = backend.translate_error(RuntimeError(message))
    assert "dist_timeout" in known.remedy
    assert "集合通信超时" in known.chinese
    (issue,) = backend.check_config(config, left_over)
    assert (issue.level, issue.key) == ("warning", "HCCL_EXEC_TIMEOUT")
    env = {name: value for name, value in backend.env_defaults(config, {}).items() if "TIMEOUT" in name}
    assert env == {"HCCL_CONNECT_TIMEOUT": "120", "HCCL_EXEC_TIMEOUT": "60"}
    done = simulate("broken_collective.py", "late", options=TWO, processes=2, env=AUTOLOAD | env)
    assert len(re.findall(r"late: rank [01]: no error", done.stdout)) == 2, done.stdout + done.stderr[-3000:]


def test_collective_on_a_cpu_tensor(backend, group) -> None:
    """B5."""
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu") as error:
        dist.all_reduce(torch.ones(2))
    assert "collective_device" in backend.translate_error(error.value).remedy
    total = torch.ones(2, device=backend.collective_device)
    dist.all_reduce(total)
    # The engine's own sums take tensors from anywhere.
    world = World(rank=0, local_rank=0, world_size=2, device=backend.collective_device)
    assert world.sum(torch.ones(2)).device.type == "npu"


class OnNpu(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that touch the NPU in the worker."""

    def __init__(self, stays: bool) -> None:
        self.stays = stays

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        import torch_npu  # noqa: F401

        sample = torch.tensor([float(index)], device="npu") * 2
        return sample if self.stays else sample.cpu()


def read(**options: object) -> list[list[float]]:
    return [batch.flatten().tolist() for batch in torch.utils.data.DataLoader(batch_size=2, **options)]


def test_forked_workers(backend) -> None:
    """B6: workers forked after the NPU was initialised cannot use it; those that the backend has started can."""
    torch.ones(1, device="npu")
    with pytest.raises(RuntimeError, match="Cannot re-initialize NPU in forked subprocess") as error:
        read(dataset=OnNpu(stays=False), num_workers=1, multiprocessing_context="fork")
    assert "forked" in backend.translate_error(error.value).what
    method = backend.dataloader_defaults.start_method
    assert read(dataset=OnNpu(stays=False), num_workers=1, multiprocessing_context=method) == [[0, 2], [4, 6]]


def test_pinning_what_is_on_the_device(backend) -> None:
    """B7."""
    with pytest.raises(RuntimeError, match="cannot pin") as error:
        read(dataset=OnNpu(stays=True), pin_memory=True)
    assert "pin_memory_ok" in backend.translate_error(error.value).remedy
    assert read(dataset=OnNpu(stays=True), pin_memory=backend.pin_memory_ok) == [[0, 2], [4, 6]]


def test_cuda_capability(backend) -> None:
    """B8: a CUDA version as a feature flag; the backend answers what was meant."""
    with pytest.raises(TypeError) as error:
        _major, _minor = torch.npu.get_device_capability()
    assert "compute capability" in backend.translate_error(error.value).what
    with pytest.raises(TypeError) as error:
        assert torch.npu.get_device_capability() >= (8, 0)
    assert "compute capability" in backend.translate_error(error.value).what
    assert backend.compute_dtype("bf16") is torch.bfloat16
