"""Version 1 of the contract keeps its word: what a plugin of that time implements and names still works.

A hook with a default, an optional field and an argument more are compatible. Anything else needs a new major version,
and then `version1/contract.json` is made anew with `contract.describe()`.
"""

from __future__ import annotations

import json
import types as python_types
from pathlib import Path

import pluggy
import pytest
import torch

from tests.backend import contract
from tests.backend.version1 import plugin
from vla_backend import AttentionNeeds, activate, hookspecs
from vla_backend.activation import new_manager
from vla_backend.discovery import Candidate
from vla_backend.hookspecs import SPECS
from vla_backend.markers import API, Phase, hookspec

THEN = json.loads((Path(__file__).parent / "version1" / "contract.json").read_text())
NOW = contract.describe()


def test_the_frozen_version_is_this_major_version() -> None:
    assert THEN["api"].split(".")[0] == API.split(".")[0]


@pytest.mark.parametrize("name", THEN["hooks"])
def test_a_hook_means_what_it_meant(name) -> None:
    then, now = THEN["hooks"][name], NOW["hooks"][name]
    assert {key: now[key] for key in ("phase", "returns", "required")} == {
        key: then[key] for key in ("phase", "returns", "required")
    }
    assert now["arguments"][: len(then["arguments"])] == then["arguments"]


def test_no_new_hook_is_required() -> None:
    assert not [name for name, hook in NOW["hooks"].items() if hook["required"] and name not in THEN["hooks"]]


@pytest.mark.parametrize("name", THEN["types"])
def test_a_type_is_built_and_read_as_before(name) -> None:
    then, now = THEN["types"][name], NOW["types"][name]
    # Fields may be given by position, so that new ones come last.
    assert list(now)[: len(then)] == list(then)
    assert all(now[field] for field in now if field not in then), "a new field needs a default"
    assert all(now[field] or not optional for field, optional in then.items())


def test_public_names_stay() -> None:
    assert set(THEN["names"]) <= set(NOW["names"])


@pytest.fixture
def old_backend(monkeypatch):
    monkeypatch.setattr(Candidate, "load", lambda self: plugin)
    plugin.calls.clear()
    backend = activate(Candidate("yesterday", "yesterday-dist", "1.0", "yesterday"))
    return backend


class State:
    rank, world_size, deepspeed = 0, 1, None

    def tensors(self):
        return {}

    def load_tensors(self, tensors):
        pass


@pytest.mark.filterwarnings("error")
def test_an_old_plugin_answers_every_hook_of_its_time(old_backend, tmp_path) -> None:
    backend, error = old_backend, RuntimeError("x")
    assert backend.env_defaults({}, {}) == {"YESTERDAY": "1"}
    assert backend.visible_devices_env == "YESTERDAY_VISIBLE"
    assert backend.check_config({}, {})[0].remedy == "lower it"
    assert backend.pin_memory_ok is False
    assert backend.dataloader_defaults.num_workers == 1
    assert backend.video_ctx.decoders == ("pyav",)
    assert backend.dist_backend == "gloo"
    assert backend.compile_backend == "eager"
    assert backend.tune_deepspeed({"a": 1}).config == {"a": 1, "old": True}
    assert backend.translate_error(error).what == "old"
    assert backend.load_stack() == (f"torch {torch.__version__}",)
    assert backend.local_device(0) == torch.device("cpu")
    assert backend.apply_patches()[0].name == "old"
    assert backend.compute_dtype("bf16") is torch.bfloat16
    assert backend.to_device(torch.ones(1)).device.type == "cpu"
    assert backend.matmul_precision("high") == {}
    assert backend.sampling_device("beta") == torch.device("cpu")
    assert backend.to_numpy(torch.ones(1)).tolist() == [1.0]
    assert backend.fused_optimizer("AdamW").path == "torch.optim:AdamW"
    assert backend.attention_impl(AttentionNeeds()) == "eager"
    assert backend.fused_kernels.attention is None
    assert backend.collective_device == torch.device("cpu")
    backend.synchronize()
    assert backend.memory_stats().peak == 3
    backend.set_rng_state(backend.rng_state())
    with backend.autocast(torch.bfloat16), backend.fp32_region(), backend.evaluating(torch.nn.Linear(1, 1)):
        pass
    assert backend.save_sharded(State(), tmp_path) == ["old.bin"]
    backend.load_sharded(State(), tmp_path)
    assert set(plugin.calls) == set(THEN["hooks"])
    assert set(backend.providers().values()) <= {"yesterday", "default"}


def test_an_argument_and_a_hook_more_do_not_disturb_an_old_plugin(monkeypatch) -> None:
    """What a later minor version may do: the same host code with one argument and one hook added."""
    added = python_types.ModuleType("later")

    @hookspec(Phase.PRE_IMPORT, returns=bool)
    def pin_memory_ok(numa_node: int) -> bool: ...

    @hookspec(Phase.PRE_IMPORT, returns=str)
    def interconnect() -> str: ...

    added.pin_memory_ok, added.interconnect = pin_memory_ok, interconnect
    manager = new_manager()
    later = pluggy.PluginManager("vla_backend")
    for module in hookspecs.MODULES:
        copy = python_types.ModuleType(module.__name__)
        copy.__dict__.update({name: value for name, value in vars(module).items() if name != "pin_memory_ok"})
        later.add_hookspecs(copy)
    later.add_hookspecs(added)
    later.register(plugin, name="yesterday")
    later.check_pending()
    assert later.hook.pin_memory_ok(numa_node=1) is False
    assert later.hook.interconnect() is None
    assert set(SPECS) == {name for name in vars(manager.hook) if not name.startswith("_")}
