"""Devices, memory, streams, random numbers and processes of torch_npu on the simulated CANN."""

from __future__ import annotations

import io
import os
import subprocess

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.ascend_sim


def test_devices() -> None:
    assert torch.npu.device_count() == 2
    assert torch.npu.get_device_name(0) == "Ascend910B2"
    assert torch.npu.get_device_capability() is None  # as on the chip
    x = torch.ones(2, device="npu:1")
    assert x.to("npu:0").device == torch.device("npu", 0)
    with pytest.raises(RuntimeError, match="107001"):
        torch.npu.set_device(9)


@pytest.mark.parametrize(
    ("mask", "count"), [("0", 1), ("1", 1), ("0,1", 2), ("1,0", 0), ("0,7,1", 1), ("", 0), ("0 1", 1), ("0, 1", 1)]
)
def test_visible_devices(simulate, mask: str, count: int) -> None:
    done = simulate(
        "import ctypes; n = ctypes.c_uint32(); "
        "ctypes.CDLL('libascendcl.so').aclrtGetDeviceCount(ctypes.byref(n)); print(n.value)",
        options=("--devices", "2"),
        env={"ASCEND_RT_VISIBLE_DEVICES": mask},
    )
    assert done.stdout.strip() == str(count), done.stderr


def test_memory_statistics() -> None:
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated()
    free, total = torch.npu.mem_get_info()
    x = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() - before >= x.numel()
    assert free - torch.npu.mem_get_info()[0] >= x.numel()
    assert total == 64 << 30
    del x
    assert torch.npu.memory_allocated() == before


MEMORY = """
import torch
held = []
try:
    while len(held) < 100: held.append(torch.empty(8 << 20, dtype=torch.uint8, device="npu"))
except RuntimeError as error: print(len(held), str(error)[:17])  # torch.OutOfMemoryError since torch_npu 2.8
held.clear(); torch.npu.empty_cache(); torch.empty(8 << 20, dtype=torch.uint8, device="npu"); print("again")
"""


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
def test_capacity(simulate, allocator: str) -> None:
    env = {"PYTORCH_NPU_ALLOC_CONF": allocator} if allocator else {}
    done = simulate(MEMORY, options=("--memory", "0.0625"), env=env)
    first, second = done.stdout.splitlines()
    assert second == "again"
    assert first.endswith("NPU out of memory")
    assert 2 <= int(first.split()[0]) <= 8  # of 64 MB


SHARED = """
import subprocess, sys, torch
x = torch.empty(40 << 20, dtype=torch.uint8, device="npu")
code = 'import torch; torch.empty(40 << 20, dtype=torch.uint8, device="npu")'
print("out of memory" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr)
del x; torch.npu.empty_cache()
print(subprocess.run([sys.executable, "-c", code], capture_output=True).returncode)
"""


def test_processes_share_a_devices_memory(simulate) -> None:
    assert simulate(SHARED, options=("--memory", "0.0625")).stdout.split() == ["True", "0"]


def test_streams_and_events() -> None:
    stream = torch.npu.Stream()
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    with torch.npu.stream(stream):
        x = torch.ones(100, device="npu") * 2
    end.record()
    torch.npu.current_stream().wait_stream(stream)
    torch.npu.synchronize()
    x.record_stream(stream)
    assert end.query()
    assert start.elapsed_time(end) > 0


def test_random_numbers() -> None:
    torch.npu.manual_seed(1)
    first = torch.randn(4, device="npu")
    state = torch.npu.get_rng_state()
    second = torch.randn(4, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.equal(torch.randn(4, device="npu"), second)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(torch.randn(4, device="npu"), first)
    own = [torch.randn(4, device="npu", generator=torch.Generator("npu").manual_seed(3)) for _ in range(2)]
    assert torch.equal(*own)
    host = torch.get_rng_state()
    drop = nn.Dropout(0.5)(torch.ones(1000, device="npu"))
    assert 700 < drop.sum().item() < 1300
    assert torch.equal(host, torch.get_rng_state())  # the host's generator is not touched


def test_pinned_memory() -> None:
    pinned = torch.arange(3.0).pin_memory()
    assert pinned.is_pinned()
    assert not torch.ones(3).is_pinned()
    assert pinned.to("npu", non_blocking=True).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(3, device="npu").pin_memory()


def test_bfloat16_to_numpy_fails_as_on_the_chip() -> None:
    with pytest.raises(TypeError, match="unsupported ScalarType BFloat16"):
        torch.ones(2, dtype=torch.bfloat16, device="npu").cpu().numpy()


def test_save_and_load() -> None:
    buffer = io.BytesIO()
    torch.save({"model": nn.Linear(3, 3).npu().state_dict(), "x": torch.ones(2, dtype=torch.bfloat16).npu()}, buffer)
    places = [("cpu", "cpu"), (None, "npu:0"), ("npu:1", "npu:1")]
    # torch_npu 2.7.1 takes any "npu:N" for the current device.
    for where, device in places if not torch.__version__.startswith("2.7.") else places[:2]:
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=where, weights_only=True)
        assert str(loaded["x"].device) == str(loaded["model"]["weight"].device) == device


def test_child_of_fork_cannot_use_the_device() -> None:
    x = torch.ones(2, device="npu")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, str(x + 1).encode())
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    text = os.read(read, 1000).decode()
    assert "107002" in text
    assert "os.fork()" in text
    assert (x + 1).tolist() == [2, 2]


class Items(torch.utils.data.Dataset):
    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)], device=self.device)


def test_dataloader_workers() -> None:
    torch.ones(1, device="npu")

    def read(device: str, context: str) -> list[torch.Tensor]:
        loader = torch.utils.data.DataLoader(
            Items(device), batch_size=2, num_workers=1, multiprocessing_context=context, pin_memory=device == "cpu"
        )
        return [batch.flatten().tolist() for batch in loader]

    assert read("cpu", "fork") == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match="Cannot re-initialize NPU in forked subprocess"):
        read("npu", "fork")


def test_npu_smi() -> None:
    x = torch.ones(64 << 20, dtype=torch.uint8, device="npu:1")
    table = subprocess.run(["npu-smi", "info"], capture_output=True, text=True, check=True).stdout
    assert "910B2" in table
    assert "simulated CANN" in table
    assert str(os.getpid()) in table
    used = [int(line.split("/")[-2].split()[-1]) for line in table.splitlines() if "/ 65536" in line]
    assert used[1] >= x.numel() >> 20
    listing = subprocess.run(["npu-smi", "info", "-l"], capture_output=True, text=True, check=True).stdout
    assert "Total Count                    : 2" in listing
    unknown = subprocess.run(["npu-smi", "top"], capture_output=True, text=True)
    assert unknown.returncode == 1
    assert "not simulated" in unknown.stdout
