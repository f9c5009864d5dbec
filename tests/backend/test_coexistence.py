"""Packages that have rewritten torch are found, named, and their consequence is said."""

from __future__ import annotations

import functools
from types import FunctionType, ModuleType, SimpleNamespace

import pytest
import torch

from vla_backend.coexistence import rewrites


def test_torch_as_it_comes_is_clean() -> None:
    assert rewrites() == ()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch_npu.contrib.transfer_to_npu", "transfer_to_npu of torch_npu"),
        ("ascend_compat", "cuda-morph"),
        ("torchada", "torchada"),
        ("mindspeed.megatron_adaptor", "MindSpeed"),
        ("mx_driving", "mx_driving"),
    ],
)
def test_known_packages_are_named(module, name) -> None:
    (found,) = rewrites({module: ModuleType(module)})
    assert found.name == name
    assert module in found.evidence
    assert found.consequence
    assert found.remedy
    assert name in str(found)


def test_a_package_that_is_only_hidden_is_none() -> None:
    assert rewrites({"torchada": None}) == ()


def test_apex_is_at_work_once_it_was_initialised() -> None:
    state = ModuleType("apex.amp._amp_state")
    state._amp_state = SimpleNamespace()
    modules = {"apex": ModuleType("apex"), "apex.amp": ModuleType("apex.amp"), state.__name__: state}
    assert rewrites(modules) == ()
    state._amp_state.opt_properties = object()
    (found,) = rewrites(modules)
    assert found.name == "apex"


def test_a_wrapper_that_copies_the_name_of_what_it_wraps_is_found(monkeypatch) -> None:
    """As torch_npu and apex make theirs, with `functools.wraps`."""
    shim: dict = {"__name__": "wonder_port.shim", "functools": functools}
    exec("def wrap(f):\n @functools.wraps(f)\n def g(*a):\n  return f(*a)\n return g", shim)
    monkeypatch.setattr(torch.nn.Module, "to", shim["wrap"](torch.nn.Module.to))
    assert torch.nn.Module.to.__module__.startswith("torch.")
    (found,) = rewrites()
    assert (found.name, found.evidence) == ("wonder_port", "it has replaced torch.nn.Module.to")


def test_an_unknown_package_is_found_by_what_it_replaced(monkeypatch) -> None:
    def is_available():
        return True

    shim = FunctionType(is_available.__code__, {"__name__": "wonder_port.shim"})
    monkeypatch.setattr(torch.cuda, "is_available", shim)
    monkeypatch.setattr(torch, "matmul", shim)
    (found,) = rewrites()
    assert found.name == "wonder_port"
    assert found.evidence == "it has replaced torch.cuda.is_available, torch.matmul"


def test_a_run_says_it_and_keeps_it_in_its_ledger(tmp_path, monkeypatch) -> None:
    import json
    import sys

    from tests.train import toy
    from vla_backend import activate
    from vla_train.train.run import run

    monkeypatch.setitem(sys.modules, "torchada", ModuleType("torchada"))
    with pytest.warns(RuntimeWarning, match=r"torchada \(torchada is imported\): torch reports a chip"):
        run(toy.config(tmp_path), toy.entry, activate("cpu"))
    ledger = json.loads((tmp_path / "run" / "decisions.json").read_text())["ledger"]
    (line,) = [line for line in ledger["set-up"] if line["subject"] == "torch rewritten by torchada"]
    assert "chip that is not there" in line["why"]


def test_what_the_backend_loaded_itself_is_not_foreign(monkeypatch) -> None:
    to = FunctionType((lambda *_: None).__code__, {"__name__": "chip_extension.patches"})
    monkeypatch.setattr(torch.nn.Module, "to", to)
    assert [found.name for found in rewrites()] == ["chip_extension"]
    assert rewrites(own=["torch", "chip_extension"]) == ()
