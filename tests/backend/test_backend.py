from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from vla_backend import FusedKernels, Phase, activate
from vla_backend.errors import PhaseError


@pytest.fixture
def backend():
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_contract_imports_no_torch_and_no_vendor_package() -> None:
    heavy = run("""
        import sys, vla_backend
        from vla_backend import candidates, choose
        choose("cpu", {}); candidates()
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "torch_npu", "numpy", "deepspeed"}))
    """)
    assert heavy == "[]"


def test_probing_all_backends_imports_no_torch() -> None:
    heavy = run("""
        import sys
        from vla_backend import choose
        choose(None, {})
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "torch_npu", "numpy", "deepspeed"}))
    """)
    assert heavy == "[]"


def test_phases() -> None:
    backend = activate("cpu")
    assert backend.phase is Phase.PRE_IMPORT
    with pytest.raises(PhaseError, match=r"autocast_device.*too early"):
        _ = backend.autocast_device
    backend.load_stack()
    assert backend.compute_dtype("fp32") is torch.float32
    with pytest.raises(PhaseError, match="local_device"):
        backend.synchronize()
    # On some chips entering autocast opens the current device, which is not this rank's yet.
    with pytest.raises(PhaseError, match="local_device"):
        backend.autocast(torch.bfloat16)
    with pytest.raises(PhaseError, match="has no device yet"):
        _ = backend.device
    backend.local_device(0)
    assert backend.autocast_device == "cpu"
    assert backend.device == torch.device("cpu")
    assert backend.phase is Phase.DEVICE_READY
    backend.load_stack()
    assert backend.phase is Phase.DEVICE_READY, "a second call must not lead back"


def test_values_are_resolved_once() -> None:
    calls = []

    class Counter:
        @__import__("vla_backend").hookimpl(wrapper=True)
        def dist_backend(self):
            calls.append(1)
            return (yield)

    backend = activate("cpu", observers=[Counter()])
    for _ in range(3):
        assert backend.dist_backend == "gloo"
    assert len(calls) == 1


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.bool]
)
def test_to_numpy_dtypes(backend, dtype) -> None:
    tensor = torch.tensor([0, 1, 1]).to(dtype)
    array = backend.to_numpy(tensor)
    assert array.tolist() == [0, 1, 1]
    if dtype == torch.bfloat16:
        assert array.dtype == np.float32


def test_to_numpy_layouts(backend) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).requires_grad_()
    assert np.array_equal(backend.to_numpy(tensor.T), np.arange(6.0).reshape(2, 3).T)
    assert backend.to_numpy(torch.tensor(3.0)).shape == ()
    assert np.array_equal(backend.to_numpy(torch.tensor([1 + 2j]).conj()), [1 - 2j])
    assert np.array_equal(backend.to_numpy(torch.tensor([1 + 2j]).conj().imag), [-2])
    fp8 = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert backend.to_numpy(fp8).tolist() == [1.0, 2.0]


def test_autocast_and_fp32_region_really_switch(backend) -> None:
    a = torch.ones(2, 2)
    with backend.autocast(torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        with backend.fp32_region():
            assert (a @ a).dtype == torch.float32
        with backend.autocast(torch.float32):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


def test_evaluating_restores_every_modules_mode(backend) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    model.train()
    model[1].eval()
    with backend.evaluating(model):
        assert not model.training
        result = model(torch.ones(1, 2))
        assert not result.requires_grad
        assert not torch.is_inference_mode_enabled()
    assert model.training
    assert model[0].training
    assert not model[1].training
    # The result may enter autograd later, which an inference tensor could not.
    (model[0].weight.sum() * result.sum()).backward()


def test_evaluating_restores_after_an_error(backend) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="boom"), backend.evaluating(model):
        raise ValueError("boom")
    assert model.training
    assert torch.is_grad_enabled()


def test_to_device_moves_nested_batches(backend) -> None:
    batch = {"a": torch.ones(2), "b": [torch.ones(1), "text"], "c": (1, torch.zeros(1))}
    moved = backend.to_device(batch)
    assert moved["b"][1] == "text"
    assert moved["c"][0] == 1
    assert moved["a"].device.type == "cpu"


def test_rng_state_round_trip(backend) -> None:
    state = backend.rng_state()
    first = torch.rand(3)
    backend.set_rng_state(state)
    assert torch.equal(first, torch.rand(3))


def test_env_defaults_never_override_the_user() -> None:
    backend = activate("cpu")
    assert backend.env_defaults({}, {})["DS_ACCELERATOR"] == "cpu"
    assert "DS_ACCELERATOR" not in backend.env_defaults({}, {"DS_ACCELERATOR": "other"})


@pytest.mark.parametrize(("theirs", "kept"), [("/user", "/vendor:/user"), ("", "/vendor"), (None, "/vendor")])
def test_folders_go_in_front_of_a_search_path_also_of_an_empty_one(monkeypatch, theirs, kept) -> None:
    backend = activate("cpu")
    env = {} if theirs is None else {"LD_LIBRARY_PATH": theirs}
    monkeypatch.setitem(backend._calls, "env_defaults", lambda config, env: {"LD_LIBRARY_PATH": kept})
    assert backend.env_defaults({}, env) == {"LD_LIBRARY_PATH": kept}


def test_calls_cross_processes(backend) -> None:
    # Errors are raised in data workers and child processes and must survive pickling.
    import pickle

    error = PhaseError("what", why="why", fix="fix")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (PhaseError, str(error))


def test_fused_kernels_are_none_where_the_chip_has_none(backend) -> None:
    assert backend.fused_kernels == FusedKernels()
