"""Errors that do not depend on the chip are explained by every backend."""

from __future__ import annotations

import pytest

from vla_backend import activate

HOST = [
    ("DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that ...", "--shm-size"),
    ("DataLoader worker (pid 77) is killed by signal: Killed.", "num_workers"),
    ("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory", "memory"),
    ("Cannot re-initialize CUDA in forked subprocess.", "fork"),
    ("Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing ...", "fork"),
    ("Got unsupported ScalarType BFloat16", "to_numpy"),
    ("Inference tensors cannot be saved for backward. To work around ...", "evaluating"),
    ("tensor has no storage", "evaluating"),
    ("No backend type associated with device type cpu", "collective_device"),
    ("The server socket has failed to listen ... EADDRINUSE, message: address already in use", "MASTER_PORT"),
    ("[../third_party/gloo/...] Connection closed by peer [127.0.0.1]:3", "other ranks"),
    ("[Errno 28] No space left on device", "Free space"),
]


@pytest.mark.parametrize("backend", ["cpu", "cuda", "ascend"])
@pytest.mark.parametrize(("message", "remedy"), HOST)
def test_host_errors(backend, message, remedy) -> None:
    explanation = activate(backend, check_available=False).translate_error(RuntimeError(message))
    assert explanation.known
    assert remedy in explanation.remedy
    assert explanation.what
    assert explanation.why


@pytest.mark.parametrize("backend", ["cpu", "cuda", "ascend"])
def test_an_unknown_error_stays_unknown(backend) -> None:
    explanation = activate(backend, check_available=False).translate_error(ValueError("shape mismatch"))
    assert explanation.known is False


def test_the_root_cause_is_found_behind_a_wrapper() -> None:
    error = RuntimeError("evaluation failed")
    error.__cause__ = TypeError("Got unsupported ScalarType BFloat16")
    assert activate("cpu").translate_error(error).known


def test_a_memory_error_is_told_by_its_type() -> None:
    assert "memory" in activate("cpu").translate_error(MemoryError()).what


def test_a_cycle_of_causes_ends() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert activate("cpu").translate_error(one).known is False
