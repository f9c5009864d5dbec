"""Ascend's answers that need neither torch_npu nor hardware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vla_backend import activate
from vla_backend.errors import UnsupportedError
from vla_backend_ascend import config_checks, environment, hardware


@pytest.fixture
def backend():
    return activate("ascend", check_available=False)


@pytest.fixture
def eight(tmp_path, monkeypatch):
    """Eight NPUs in /dev."""
    monkeypatch.setattr(hardware, "ROOT", tmp_path)
    (tmp_path / "dev").mkdir()
    for number in range(8):
        (tmp_path / "dev" / f"davinci{number}").touch()
    return tmp_path


def levels(backend, config, env=None) -> dict[str, str]:
    return {issue.key: issue.level for issue in backend.check_config(config, env or {})}


def test_values(backend) -> None:
    assert (backend.device_type, backend.dist_backend) == ("npu", "hccl")
    assert backend.visible_devices_env == "ASCEND_RT_VISIBLE_DEVICES"
    assert backend.pin_memory_ok is False
    assert backend.dataloader_defaults.start_method == "spawn"
    assert backend.video_ctx.device == "cpu"


def test_compiler_is_torchair(backend, monkeypatch, tmp_path) -> None:
    from vla_backend_ascend import train

    monkeypatch.setattr(train, "package_folder", lambda name: tmp_path if name == "torch_npu" else None)
    with pytest.raises(UnsupportedError, match="torchair"):
        _ = backend.compile_backend
    (tmp_path / "dynamo" / "torchair").mkdir(parents=True)
    assert backend.compile_backend == "npu"


def test_decoders_by_architecture() -> None:
    from vla_backend_ascend.data import video_ctx

    assert video_ctx("aarch64").decoders == ("pyav", "torchcodec")
    assert video_ctx("x86_64").decoders[0] == "pyav"
    assert set(video_ctx("x86_64").decoders) == {"pyav", "decord", "torchcodec"}


# environment


def test_environment(backend) -> None:
    env = backend.env_defaults({}, {})
    assert env["TASK_QUEUE_ENABLE"] == "2"
    assert env["PYTORCH_NPU_ALLOC_CONF"] == "expandable_segments:True"
    assert env["CPU_AFFINITY_CONF"] == "1"
    assert env["DS_ACCELERATOR"] == "npu"
    assert env["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert env["TORCH_TRANSFER_TO_NPU"] == "0"
    assert env["WANDB_MODE"] == "offline"
    assert all(isinstance(value, str) for value in env.values())


def test_the_user_decides(backend) -> None:
    assert "TASK_QUEUE_ENABLE" not in backend.env_defaults({}, {"TASK_QUEUE_ENABLE": "1"})
    assert "WANDB_MODE" not in backend.env_defaults({}, {"WANDB_API_KEY": "x"})
    assert "TASK_QUEUE_ENABLE" not in backend.env_defaults({}, {"ASCEND_LAUNCH_BLOCKING": "1"})


@pytest.mark.parametrize(("seconds", "connect"), [(30, "120"), (600, "600"), (1800, "1800"), (100_000, "7200")])
def test_one_timeout_sets_all(backend, seconds, connect) -> None:
    env = backend.env_defaults({"parallel": {"dist_timeout": seconds}}, {})
    assert env["HCCL_CONNECT_TIMEOUT"] == connect
    assert env["HCCL_EXEC_TIMEOUT"] == str(seconds)


def test_library_folders_come_in_front_of_the_users_path(backend, monkeypatch) -> None:
    folders = {"torch": Path("/site/torch"), "torch_npu": Path("/site/torch_npu")}
    monkeypatch.setattr(environment, "package_folder", folders.get)
    wheels = "/site/torch/lib:/site/torch_npu/lib"
    assert backend.env_defaults({}, {})["LD_LIBRARY_PATH"] == wheels
    # CANN's set_env.sh has always set the variable; its folders must stay.
    assert backend.env_defaults({}, {"LD_LIBRARY_PATH": "/cann/lib64:"})["LD_LIBRARY_PATH"] == f"{wheels}:/cann/lib64:"
    assert "LD_LIBRARY_PATH" not in backend.env_defaults({}, {"LD_LIBRARY_PATH": wheels})
    some = backend.env_defaults({}, {"LD_LIBRARY_PATH": "/site/torch/lib"})["LD_LIBRARY_PATH"]
    assert some == "/site/torch_npu/lib:/site/torch/lib"


def test_a_port_block_is_chosen_for_several_processes_only(backend) -> None:
    assert "HCCL_IF_BASE_PORT" not in backend.env_defaults({"parallel": {"processes": 1}}, {})
    port = int(backend.env_defaults({"parallel": {"processes": 2}}, {})["HCCL_IF_BASE_PORT"])
    assert 60000 <= port <= environment.LAST_BASE_PORT


def test_ports_lie_above_those_that_linux_hands_out(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "ROOT", tmp_path)
    path = tmp_path / "proc/sys/net/ipv4/ip_local_port_range"
    path.parent.mkdir(parents=True)
    for text, first in (("32768\t60999\n", 61000), ("1024\t62000\n", 62001), ("1024\t65535\n", 60000), ("?", 61000)):
        path.write_text(text)
        assert environment.free_base_port(lambda port: True) == first
    path.write_text("32768\t60999\n")
    taken = {61003, 61016}
    assert environment.free_base_port(lambda port: port not in taken) == 61032
    assert environment.free_base_port(lambda port: False) == 0


def test_a_taken_port_is_noticed() -> None:
    import socket

    with socket.socket() as holder:
        holder.bind(("", 0))
        assert not environment._can_bind(holder.getsockname()[1])


# configuration


def test_nothing_to_complain_about(backend, eight) -> None:
    config = {"parallel": {"processes": 8, "mixed_precision": "bf16", "deepspeed": {"bf16": {"enabled": "auto"}}}}
    assert levels(backend, config, {"ASCEND_RT_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}) == {}
    assert levels(backend, {}) == {}


def test_more_processes_than_devices(backend, eight) -> None:
    (issue,) = backend.check_config({"parallel": {"processes": 9}}, {})
    assert (issue.level, issue.key) == ("error", "parallel.processes")
    assert "9 processes for 8 visible" in issue.message
    assert levels(backend, {"parallel": {"processes": 3}}, {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}) == {
        "parallel.processes": "error"
    }


def test_masks(backend, eight) -> None:
    assert levels(backend, {}, {"ASCEND_RT_VISIBLE_DEVICES": "1,0"}) == {"ASCEND_RT_VISIBLE_DEVICES": "error"}
    assert levels(backend, {}, {"ASCEND_VISIBLE_DEVICES": "0,1"}) == {"ASCEND_VISIBLE_DEVICES": "warning"}
    assert levels(backend, {}, {"CUDA_VISIBLE_DEVICES": "0"}) == {"CUDA_VISIBLE_DEVICES": "warning"}
    assert levels(backend, {}, {"CUDA_VISIBLE_DEVICES": "0", "ASCEND_RT_VISIBLE_DEVICES": "0"}) == {}


@pytest.mark.parametrize(
    ("owner", "deepspeed", "expected"),
    [
        ("bf16", {"bf16": {"enabled": False}}, {"parallel.deepspeed.bf16": "error"}),
        ("fp32", {"bf16": {"enabled": True}}, {"parallel.deepspeed.bf16": "error"}),
        ("bf16", {"fp16": {"enabled": True}}, {"parallel.deepspeed.fp16": "error"}),
        ("bf16", {"bf16": {"enabled": True}}, {"parallel.deepspeed.bf16": "warning"}),
        ("bf16", {"bf16": {"enabled": "auto"}}, {}),
        ("bf16", {"zero_optimization": {"stage": 2}}, {}),
    ],
)
def test_precision_has_one_owner(backend, tmp_path, owner, deepspeed, expected) -> None:
    config = {"parallel": {"mixed_precision": owner, "deepspeed": deepspeed}}
    assert levels(backend, config) == expected
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(deepspeed))
    config["parallel"]["deepspeed"] = str(path)
    assert levels(backend, config) == expected


def test_a_missing_deepspeed_file_is_not_this_checks_business(backend) -> None:
    assert levels(backend, {"parallel": {"mixed_precision": "bf16", "deepspeed": "/nowhere.json"}}) == {}


def test_cuda_habits_in_the_configuration(backend, monkeypatch) -> None:
    config = {"model": {"backbone": {"attn_implementation": "flash_attention_2"}}, "data": {"decoder": "decord-gpu"}}
    assert levels(backend, config) == {
        "model.backbone.attn_implementation": "warning",
        "data.decoder": "error",
    }
    assert levels(backend, {"model": {"attn_implementation": "sdpa"}, "data": {"decoder": "decord"}}) == {}
    monkeypatch.setattr(config_checks.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(config_checks, "package_folder", lambda name: None)
    assert levels(backend, {"data": {"decoder": "decord"}}) == {"data.decoder": "error"}


def test_environment_of_the_user(backend) -> None:
    assert levels(backend, {}, {"TORCH_TRANSFER_TO_NPU": "1"}) == {"TORCH_TRANSFER_TO_NPU": "error"}
    assert levels(backend, {}, {"ASCEND_LAUNCH_BLOCKING": "1"}) == {"ASCEND_LAUNCH_BLOCKING": "warning"}
    config = {"parallel": {"dist_timeout": 3600}}
    assert levels(backend, config, {"HCCL_EXEC_TIMEOUT": "1800"}) == {"HCCL_EXEC_TIMEOUT": "warning"}
    assert levels(backend, config, {"HCCL_EXEC_TIMEOUT": "3600"}) == {}


# DeepSpeed


def test_buckets_shrink(backend) -> None:
    config = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e7}}
    tuning = backend.tune_deepspeed(config)
    assert tuning.config["zero_optimization"]["reduce_bucket_size"] == 1e8
    assert tuning.config["zero_optimization"]["allgather_bucket_size"] == 5e7
    assert len(tuning.changes) == 1
    assert config["zero_optimization"]["reduce_bucket_size"] == 5e8, "the given configuration must stay"


def test_absent_buckets_are_deepspeeds_own(backend) -> None:
    tuned = backend.tune_deepspeed({"zero_optimization": {"stage": 2}}).config["zero_optimization"]
    assert tuned["reduce_bucket_size"] == tuned["allgather_bucket_size"] == 1e8
    auto = backend.tune_deepspeed({"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}})
    assert auto.config["zero_optimization"]["reduce_bucket_size"] == "auto"


def test_zero3_linear(backend) -> None:
    tuning = backend.tune_deepspeed({"zero_optimization": {"stage": 3}})
    assert tuning.config["zero_optimization"]["memory_efficient_linear"] is False
    again = backend.tune_deepspeed(tuning.config)
    assert again.changes == ()
    assert again.config == tuning.config
    two = backend.tune_deepspeed({"zero_optimization": {"stage": 2}})
    assert "memory_efficient_linear" not in two.config["zero_optimization"]


def test_offload_needs_no_compiled_optimizer(backend) -> None:
    config = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    assert backend.tune_deepspeed(config).config["zero_force_ds_cpu_optimizer"] is False
    config["zero_force_ds_cpu_optimizer"] = True
    assert backend.tune_deepspeed(config).config["zero_force_ds_cpu_optimizer"] is True


@pytest.mark.parametrize("config", [{}, {"zero_optimization": {"stage": 0}}, {"bf16": {"enabled": True}}])
def test_without_zero_nothing_changes(backend, config) -> None:
    tuning = backend.tune_deepspeed(config)
    assert (tuning.config, tuning.changes) == (config, ())


def test_stage_and_precision_stay(backend) -> None:
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}}
    tuned = backend.tune_deepspeed(config).config
    assert tuned["bf16"] == {"enabled": True}
    assert tuned["zero_optimization"]["stage"] == 3


def test_deepspeed_accepts_the_tuned_configuration(backend) -> None:
    zero = pytest.importorskip("deepspeed.runtime.zero.config")
    tuned = backend.tune_deepspeed({"zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}}).config
    parsed = zero.DeepSpeedZeroConfig(**tuned["zero_optimization"])
    assert parsed.memory_efficient_linear is False
    assert parsed.reduce_bucket_size == 100_000_000


# errors


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("hcom init failed: rank 8 assigned to same device as rank 0", "parallel.processes"),
        ("hcclCommInitRootInfoConfig(...), error code is 1. EI0004: The ranktable is invalid", "parallel.processes"),
        ("EI0002: The wait execution of the Notify register times out", "dist_timeout"),
        ("hccl timeout after 1800s", "dist_timeout"),
        ("EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time", "dist_timeout"),
        (
            "EJ0003: Failed to bind the IP port. Reason: The IP address and port have been bound already.",
            "HCCL_IF_BASE",
        ),
        ("NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)", "batch_size"),
        ("EL0004: Failed to allocate memory.", "batch_size"),
        ("aclrtSetDevice failed, error code is 107001 [Error]: Invalid device ID.", "visible NPUs"),
        ("The error code is 107002. The context is empty.", "local_device"),
        ("npuInit failed, error code is 507033 [Error]: Failed to start the device.", "HwHiAiUser"),
        ("error code is 507899 [Error]: An internal error occurs in the Driver module.", "dmesg"),
        (
            "The Inner error is reported, error code is 507015. The aicore execution is abnormal.",
            "ASCEND_LAUNCH_BLOCKING",
        ),
        ("error code 507018: The aicpu execution is abnormal", "ASCEND_LAUNCH_BLOCKING"),
        ("libc10.so: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
        ("libtorch_npu.so: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
        ("libascend_hal.so: cannot open shared object file: No such file or directory", "driver"),
        ("libhccl.so: cannot open shared object file: No such file or directory", "set_env.sh"),
        ("libtorch_npu.so: undefined symbol: _ZN2at4_ops", "same version"),
        ("Two accelerators cannot be used at the same time in PyTorch: npu and npu. You can", "first import error"),
        ("Two accelerators cannot be used at the same time in PyTorch: npu and cuda. You can", "CPU build"),
        ("ASCEND_OPP_PATH environment variable is not set. Please check", "set_env.sh"),
        ("cannot import name 'TransformersNPU' from 'mx_driving.tools.patch'", "whichever interface"),
        ("Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing", "fork"),
        ("cannot pin 'npuFloatType' only dense CPU tensors can be pinned", "pin_memory_ok"),
        ("No backend type associated with device type cpu", "collective_device"),
        ("Got unsupported ScalarType BFloat16", "to_numpy"),
        ("Inference tensors cannot be saved for backward.", "evaluating"),
        ("CUDA error: no CUDA-capable device is detected", "video_ctx"),
        ("Torch not compiled with CUDA enabled", "backend.device"),
        ("cannot unpack non-iterable NoneType object", "compute_dtype"),
        (
            "FlashAttention2 has been toggled on, but it cannot be used: the package flash_attn is not installed.",
            "sdpa",
        ),
        ("unsupported atten_mask shape [2, 1, 1, 512]", "(B, 1, Q, S)"),
        ("aclnnIndex does not support DT_COMPLEX64", "to_device"),
        ("libgomp-d22c30c5.so.1.0.0: cannot allocate memory in static TLS block", "LD_PRELOAD"),
        ("No module named 'torch_npu'", "torch_npu"),
        ("No module named 'decorator'", "pip install"),
        ("UCE ERROR, retSize is 1", "checkpoint"),
    ],
)
def test_errors(backend, message, word) -> None:
    explanation = backend.translate_error(RuntimeError(message))
    assert explanation.known, message
    assert word in explanation.remedy, explanation


def test_a_number_inside_another_is_not_a_code(backend) -> None:
    assert backend.translate_error(RuntimeError("step 15070159 failed")).known is False
