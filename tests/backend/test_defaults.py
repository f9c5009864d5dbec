"""A plugin with the three required hooks only: the generic defaults carry the rest."""

from __future__ import annotations

import pytest
import torch

from vla_backend import AttentionNeeds, activate


@pytest.fixture
def backend(install):
    code = "@hookimpl\ndef local_device():\n    import torch\n    return torch.device('cpu', 0)\n"
    backend = activate(install("mychip", code))
    backend.load_stack()
    backend.local_device(0)
    return backend


def test_launch(backend) -> None:
    assert backend.visible_devices_env == ""
    assert backend.check_config({}, {}) == []
    assert backend.env_defaults({}, {}) == {}
    assert backend.apply_patches() == ()
    assert backend.load_stack()[0].startswith("torch ")


def test_precision(backend) -> None:
    assert backend.compute_dtype("bf16") is torch.bfloat16
    assert backend.safe_dtype(torch.float64) is torch.float64
    with pytest.raises(ValueError, match="fp7"):
        backend.compute_dtype("fp7")


def test_matmul_precision(backend) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        assert backend.matmul_precision("default") == {}
        assert torch.get_float32_matmul_precision() == before
        assert backend.matmul_precision("high") == {"float32_matmul_precision": "high"}
    finally:
        torch.set_float32_matmul_precision(before)


def test_runtime(backend) -> None:
    stats = backend.memory_stats(reset_peak=True)
    assert (stats.allocated, stats.total) == (0, 0)
    assert backend.sampling_device("beta") == torch.device("cpu")
    assert backend.translate_error(RuntimeError("x")).known is False
    backend.synchronize()


def test_data(backend) -> None:
    assert backend.pin_memory_ok is False
    assert backend.dataloader_defaults.start_method == "spawn"
    assert 0 <= backend.dataloader_defaults.num_workers <= 4
    assert backend.video_ctx.decoders[0] == "pyav"
    assert backend.video_ctx.device == "cpu"


def test_train(backend) -> None:
    assert backend.collective_device == backend.device
    assert backend.fused_optimizer("AdamW").path == "torch.optim:AdamW"
    assert backend.attention_impl(AttentionNeeds(head_dim=64)) == "sdpa"
    assert backend.compile_backend == "inductor"
    config = {"zero_optimization": {"stage": 3}}
    assert backend.tune_deepspeed(config).config == config
    assert backend.tune_deepspeed(config).changes == ()


def test_default_device_is_refused_when_there_are_too_few(install) -> None:
    backend = activate(install("otherchip"))
    backend.load_stack()
    # The CPU's device module counts one device: rank 1 must not share it in silence.
    with pytest.raises(RuntimeError, match=r"local rank 1 has no device of its own: 1 visible"):
        backend.local_device(1)
