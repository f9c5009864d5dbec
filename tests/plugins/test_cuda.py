from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vla_backend import AttentionNeeds, activate
from vla_backend.errors import BackendUnavailable, UnsupportedError
from vla_backend.installed import TorchBuild
from vla_backend_cuda import hardware, identity, launch

CUDA_TORCH = TorchBuild("2.13.0+cu126", "12.6", "", Path("torch"))
CPU_TORCH = TorchBuild("2.13.0+cpu", "", "", Path("torch"))
HIP_TORCH = TorchBuild("2.13.0+rocm6.4", "", "6.4.43482", Path("torch"))
UUIDS = ("GPU-11aa22bb-0000", "GPU-11cc33dd-0001", "GPU-ff000000-0002")


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An empty file system and a CUDA build of torch; answers a function that puts GPUs in."""
    monkeypatch.setattr(hardware, "ROOT", tmp_path)

    def use(build) -> None:
        monkeypatch.setattr(identity, "torch_build", lambda: build)
        monkeypatch.setattr(launch, "torch_build", lambda: build)

    def gpus(count: int, driver: str = "560.35.03", build: TorchBuild | None = CUDA_TORCH) -> Path:
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-modeset", *(f"nvidia{n}" for n in range(count))):
            write(tmp_path / "dev" / name)
        write(
            tmp_path / "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Fri Aug 16\nGCC version:  gcc version 12.3.0\n",
        )
        for number in range(count):
            write(
                tmp_path / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0/information",
                f"Model: \t\t NVIDIA\nGPU UUID: \t {UUIDS[number]}\nBus Type: \t PCIe\n",
            )
        use(build)
        return tmp_path

    use(CUDA_TORCH)
    return gpus


@pytest.fixture
def backend():
    return activate("cuda", check_available=False)


def test_no_gpu(machine, backend) -> None:
    probe = backend.probe({})
    assert not probe.ok
    assert "/dev/nvidia" in probe.reason
    assert "driver" in probe.remedy
    with pytest.raises(BackendUnavailable, match="no NVIDIA GPU"):
        activate("cuda", env={})


def test_gpus_are_counted(machine, backend) -> None:
    machine(3)
    probe = backend.probe({})
    assert probe.ok
    assert probe.device_count == 3
    assert not probe.shared
    assert "driver 560.35.03" in probe.reason
    assert "12.6" in probe.reason


@pytest.mark.parametrize(
    ("mask", "count", "dropped"),
    [
        (None, 3, ""),
        ("0", 1, ""),
        ("2,0", 2, ""),
        (" 1 , 2 ", 2, ""),
        ("", 0, ""),
        ("-1", 0, ""),
        ("0,-1,1", 1, ""),
        ("0,7,1", 1, "'7,1' is ignored"),
        ("0,1,2,3", 3, "'3' is ignored"),
        ("0,0", 0, "twice"),
        ("x", 0, "'x' is ignored"),
        ("GPU-11aa", 1, ""),
        ("GPU-ff,GPU-11cc33dd-0001", 2, ""),
        ("GPU-11", 0, "'GPU-11' is ignored"),
        ("GPU-11aa,GPU-11aa22", 0, "twice"),
        ("GPU-dead", 0, "is ignored"),
        ("MIG-4711", 1, ""),
        ("MIG-1,MIG-2", 1, "one MIG instance"),
    ],
)
def test_masks_are_read_as_the_runtime_reads_them(machine, backend, mask, count, dropped) -> None:
    machine(3)
    env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    probe = backend.probe(env)
    assert (probe.device_count, probe.ok) == (count, count > 0)
    assert dropped in probe.reason
    issues = backend.check_config({}, env)
    assert [issue.level for issue in issues] == (["warning"] if dropped else [])
    if not count:
        assert "CUDA_VISIBLE_DEVICES" in probe.remedy


def test_identifiers_count_at_most_once_per_gpu_where_the_driver_publishes_none(machine, backend) -> None:
    root = machine(1)
    for path in (root / "proc/driver/nvidia/gpus").rglob("information"):
        path.unlink()
    assert backend.probe({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}).device_count == 1


@pytest.mark.parametrize("build", [CPU_TORCH, None], ids=["cpu-build", "no-torch"])
def test_torch_without_cuda(machine, backend, build) -> None:
    machine(1, build=build)
    probe = backend.probe({})
    assert not probe.ok
    assert ("not installed" if build is None else "2.13.0+cpu is built without CUDA") in probe.reason
    assert "CUDA build" in probe.remedy


def test_old_driver_is_told_but_does_not_refuse(machine, backend) -> None:
    # Data centre GPUs may have a compatibility package that the driver's version does not show.
    machine(1, driver="470.82.01")
    probe = backend.probe({})
    assert probe.ok
    assert "driver 470.82.01 is older than 525" in probe.reason
    machine(1, driver="535.104.05")
    assert "older" not in backend.probe({}).reason


@pytest.mark.parametrize("node", ["dev/dxg", "dev/nvhost-gpu", "dev/nvgpu/igpu0"])
def test_systems_without_numbered_nodes(machine, backend, tmp_path, node) -> None:
    write(tmp_path / node)
    if node == "dev/dxg":
        assert not backend.probe({}).ok
        write(tmp_path / "usr/lib/wsl/lib/libcuda.so.1")
    assert backend.probe({}).device_count == 1


def test_rocm(machine, tmp_path) -> None:
    machine(0, build=HIP_TORCH)
    backend = activate("cuda", check_available=False)
    assert backend.info.vendor == "AMD"
    assert backend.device_type == "cuda"
    assert "AMD" in backend.probe({}).reason
    write(tmp_path / "dev/kfd")
    for node, identifier in enumerate(("0", "51234", "40321")):
        write(tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id", identifier + "\n")
    probe = backend.probe({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0,1"})
    assert probe.device_count == 1
    assert "ROCm 6.4" in probe.reason
    assert backend.probe({"CUDA_VISIBLE_DEVICES": "0,1"}).device_count == 2


def test_values(backend) -> None:
    assert (backend.device_type, backend.dist_backend) == ("cuda", "nccl")
    assert backend.visible_devices_env == "CUDA_VISIBLE_DEVICES"
    assert backend.pin_memory_ok is True
    assert backend.dataloader_defaults.start_method == "spawn"
    backend.load_stack()
    assert backend.attention_impl(AttentionNeeds(causal=True)) == "sdpa"
    assert backend.fused_optimizer("AdamW").kwargs == {"fused": True}
    assert backend.fused_optimizer("RMSprop").kwargs == {}
    config = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}
    assert backend.tune_deepspeed(config).changes == ()


def test_compiler_needs_triton(backend, monkeypatch, tmp_path) -> None:
    from vla_backend_cuda import train

    monkeypatch.setattr(train, "package_folder", lambda name: tmp_path if name == "triton" else None)
    assert train.compile_backend() == "inductor"
    monkeypatch.setattr(train, "package_folder", lambda name: None)
    with pytest.raises(UnsupportedError, match="Triton"):
        _ = backend.compile_backend


def test_decoders_by_architecture() -> None:
    from vla_backend_cuda.data import video_ctx

    assert video_ctx("x86_64").decoders == ("decord", "torchcodec", "pyav")
    assert "decord" not in video_ctx("aarch64").decoders
    assert video_ctx("aarch64").device == "cpu"


def test_env(backend) -> None:
    assert backend.env_defaults({}, {})["DS_ACCELERATOR"] == "cuda"
    assert "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC" not in backend.env_defaults({"parallel": {"dist_timeout": 60}}, {})
    env = backend.env_defaults({"parallel": {"dist_timeout": 1800}}, {})
    assert env["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "1800"


@pytest.mark.parametrize(("capability", "able"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_bf16_needs_the_capability(backend, monkeypatch, capability, able) -> None:
    backend.load_stack()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    assert backend.compute_dtype("fp16") is torch.float16
    if able:
        assert backend.compute_dtype("bf16") is torch.bfloat16
    else:
        with pytest.raises(UnsupportedError, match=r"7\.5 has no bfloat16"):
            backend.compute_dtype("bf16")


def test_asking_for_the_precision_does_not_initialise_a_gpu(backend, monkeypatch) -> None:
    backend.load_stack()
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: pytest.fail("GPU 0 is initialised"))
    assert backend.compute_dtype("bf16") is torch.bfloat16


def test_amd_is_not_judged_by_nvidias_numbers(backend, monkeypatch) -> None:
    backend.load_stack()
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert backend.compute_dtype("bf16") is torch.bfloat16


def test_matmul_precision_covers_convolutions(backend) -> None:
    backend.load_stack()
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        assert backend.matmul_precision("default") == {}
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
        backend.matmul_precision("highest")
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
        assert backend.matmul_precision("high") == {"float32_matmul_precision": "high", "cudnn.allow_tf32": "True"}
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB", "batch_size"),
        ("CUDA error: device-side assert triggered", "CUDA_LAUNCH_BLOCKING"),
        ("CUDA error: no kernel image is available for execution on the device", "torch build"),
        ("CUDA driver version is insufficient for CUDA runtime version", "driver"),
        ("Failed to initialize NVML: Driver/library version mismatch", "Restart"),
        ("CUDA error: invalid device ordinal", "CUDA_VISIBLE_DEVICES"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "parallel.processes"),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "dist_timeout"),
        ("NCCL error in: ... ncclSystemError: System call (e.g. socket, malloc) failed", "NCCL_SOCKET_IFNAME"),
        ("ncclUnhandledCudaError: Call to CUDA function failed.", "NCCL_DEBUG"),
        ("CUDA error: an illegal memory access was encountered", "ECC"),
        ("Torch not compiled with CUDA enabled", "--backend cpu"),
        ("libcudnn.so.9: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
        ("No module named 'flash_attn'", "sdpa"),
    ],
)
def test_errors(backend, message, word) -> None:
    explanation = backend.translate_error(RuntimeError(message))
    assert explanation.known
    assert word in explanation.remedy
