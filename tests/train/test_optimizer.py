"""Parameter groups, freezing and the optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vla_backend import OptimizerChoice
from vla_train.config.schema import OptimizerConfig
from vla_train.train.errors import TrainError
from vla_train.train.optimizer import build_optimizer, freeze, parameter_groups


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.ModuleDict({"vision": nn.Linear(2, 3), "text": nn.Linear(2, 3)})
        self.head = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        self.scale = nn.Parameter(torch.ones(1))


def _by_name(model, groups):
    names = {id(p): name for name, p in model.named_parameters()}
    return {group["name"]: [names[id(p)] for p in group["params"]] for group in groups}


def test_the_longest_path_owns_a_parameter():
    model = Policy()
    groups = parameter_groups(model, {"base": 1.0, "backbone": 2.0, "backbone.vision": 3.0, "head.1": 4.0})
    assert _by_name(model, groups) == {
        "backbone": ["backbone.text.weight", "backbone.text.bias"],
        "backbone.vision": ["backbone.vision.weight", "backbone.vision.bias"],
        "head.1": ["head.1.weight", "head.1.bias"],
        "base": ["scale", "head.0.weight", "head.0.bias"],
    }
    assert [group["lr"] for group in groups] == [2.0, 3.0, 4.0, 1.0]


def test_a_path_is_not_a_prefix_of_text():
    model = nn.ModuleDict({"action": nn.Linear(1, 1), "action_model": nn.Linear(1, 1)})
    groups = _by_name(model, parameter_groups(model, {"base": 1.0, "action": 2.0}))
    assert groups["action"] == ["action.weight", "action.bias"]


def test_a_shared_parameter_is_optimised_once():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    groups = parameter_groups(model, {"base": 1.0, "a": 1.0, "b": 1.0})
    tensors = [id(p) for group in groups for p in group["params"]]
    assert len(tensors) == len(set(tensors)) == 3
    torch.optim.AdamW(groups)


def test_frozen_parameters_and_empty_groups_are_left_out():
    model = Policy()
    assert freeze(model, ["backbone.text", "head"]) == 6
    groups = _by_name(model, parameter_groups(model, {"base": 1.0, "backbone": 2.0, "head": 3.0}))
    assert groups == {"backbone": ["backbone.vision.weight", "backbone.vision.bias"], "base": ["scale"]}


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"base": 1.0, "backbone.visoin": 2.0}, ["train.learning_rate", "backbone.visoin", "'backbone.vision'"]),
        ({"head": 1.0}, ["no 'base'"]),
    ],
)
def test_a_rate_that_fits_nothing_is_an_error(rates, words):
    with pytest.raises(TrainError) as error:
        parameter_groups(Policy(), rates)
    assert all(word in str(error.value) for word in words)


def test_freezing_what_does_not_exist_or_everything():
    with pytest.raises(TrainError, match=r"train\.freeze names 'hed'"):
        freeze(Policy(), ["hed"])
    model = Policy()
    freeze(model, ["backbone", "head"])
    model.scale.requires_grad_(False)
    with pytest.raises(TrainError, match="No parameter of the model is trained"):
        parameter_groups(model, {"base": 1.0})


def test_arguments_reach_the_optimizer(backend):
    config = OptimizerConfig(betas=[0.8, 0.9], eps=1e-6, weight_decay=0.1)
    optimizer = build_optimizer(Policy(), {"base": 1e-3}, config, backend)
    assert type(optimizer) is torch.optim.AdamW
    expected = {"lr": 1e-3, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}
    assert {key: optimizer.defaults[key] for key in expected} == expected


def test_only_fused_asks_the_backend(backend, monkeypatch):
    asked = []

    def fused(name):
        asked.append(name)
        return OptimizerChoice("torch.optim:AdamW", {"foreach": False})

    monkeypatch.setattr(backend, "fused_optimizer", fused)
    assert build_optimizer(Policy(), {"base": 1.0}, OptimizerConfig(), backend).defaults["foreach"] is None
    assert asked == []
    assert build_optimizer(Policy(), {"base": 1.0}, OptimizerConfig(fused=True), backend).defaults["foreach"] is False
    assert asked == ["AdamW"]


def test_other_optimizers(backend):
    assert build_optimizer(Policy(), {"base": 0.1}, OptimizerConfig("SGD"), backend).defaults["lr"] == 0.1
    with pytest.raises(TrainError, match="did you mean 'AdamW'"):
        build_optimizer(Policy(), {"base": 0.1}, OptimizerConfig("AdmaW"), backend)


def test_a_part_left_out_in_this_mode_is_no_mistake():
    model = Policy()
    model.head = None
    groups = _by_name(model, parameter_groups(model, {"base": 1.0, "head": 4.0}))
    assert set(groups) == {"base"}
    assert freeze(model, ["head.0"]) == 0
