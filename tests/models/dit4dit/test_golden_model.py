"""The complete model against recorded upstream runs: losses, gradients, actions, three training steps."""

from __future__ import annotations

import copy

import pytest
import torch
import yaml

from vla_train.config.load import load_config
from vla_train.models import find
from vla_train.nn import ReplayDraws


def test_losses_and_gradients(golden, tiny_config, build, recorded_batch):
    found, model = golden("full_joint_state"), build(tiny_config())
    model.draws = ReplayDraws.from_tensors(found.tensors, "fwd.")
    losses = model(recorded_batch())
    assert model.draws.remaining == 0
    assert sorted(losses) == ["action_loss", "future_video_loss"]
    for name, loss in losses.items():
        torch.testing.assert_close(loss.reshape(1), found[f"fwd.out.{name}"], rtol=1e-5, atol=0)
    sum(losses.values()).backward()
    compared = 0
    for name, parameter in model.named_parameters():
        norm = found.get(f"fwd.gradnorm.{name}")
        if norm is None or norm.item() == -1:
            assert parameter.grad is None, name
            continue
        compared += 1
        assert parameter.grad.norm().item() == pytest.approx(norm.item(), rel=1e-4, abs=1e-6), name
    assert compared == 168


def test_action_loss_stays_in_the_head(golden, tiny_config, build, recorded_batch):
    model = build(tiny_config())
    model.draws = ReplayDraws.from_tensors(golden("full_joint_state").tensors, "fwd.")
    model(recorded_batch())["action_loss"].backward()
    touched = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched == {"action_model"}


@pytest.mark.parametrize(("prefix", "frames"), [("pred.", 1), ("predall.", 5)])
def test_predicted_actions(golden, tiny_config, build, recorded_batch, prefix, frames):
    found, model, batch = golden("full_joint_state"), build(tiny_config()), recorded_batch()
    batch["images"] = batch["images"][:, :frames]
    model.draws = ReplayDraws.from_tensors(found.tensors, prefix)
    actions = model.predict_action(batch)
    assert model.draws.remaining == 0
    assert actions.dtype == torch.float32
    torch.testing.assert_close(actions, found[f"{prefix}out.normalized_actions"], rtol=1e-4, atol=1e-5)


def test_three_training_steps(golden, tiny_config, build, recorded_batch):
    found, model = golden("train_3steps"), build(tiny_config())
    backbone = [p for p in model.backbone_interface.parameters() if p.requires_grad]
    head = list(model.action_model.parameters())
    assert (len(backbone), len(head)) == (89, 79)
    groups = [{"params": backbone}, {"params": head}]
    optimizer = torch.optim.AdamW(groups, lr=1e-5, betas=(0.9, 0.95), eps=1e-8, weight_decay=1e-8)
    watched = {key.split(".param.", 1)[1] for key in found.tensors if ".param." in key}
    for step, log in enumerate(found.facts["log"]):
        for group, rate in zip(optimizer.param_groups, log["lr_used"], strict=True):
            group["lr"] = rate
        model.draws = ReplayDraws.from_tensors(found.tensors, f"step{step}.")
        losses = model(recorded_batch("train_3steps", f"step{step}."))
        assert losses["action_loss"].item() == pytest.approx(log["metrics"]["action_dit_loss"], rel=1e-5)
        assert losses["future_video_loss"].item() == pytest.approx(log["metrics"]["future_video_loss"], rel=1e-5)
        sum(losses.values()).backward()
        norm = torch.nn.utils.clip_grad_norm_(backbone + head, 1.0)
        assert norm.item() == pytest.approx(log["grad_norm_before_clip"], rel=1e-4)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        state = model.state_dict()
        for name in watched:
            torch.testing.assert_close(state[name], found[f"step{step}.param.{name}"], rtol=1e-4, atol=1e-6, msg=name)


def test_upstreams_own_configuration(golden, recorded_batch, upstream_facts, data_folder, backend, tmp_path):
    """The keys upstream read in the recorded run, through the loader and the model's entry, give its losses."""
    upstream = copy.deepcopy(upstream_facts["accessed_config"])
    upstream["framework"]["name"] = "DiT4DiT"
    upstream["framework"]["cosmos25"]["base_model"] = str(data_folder / "tiny_pipe")
    (tmp_path / "upstream.yaml").write_text(yaml.safe_dump(upstream))
    config, _ = load_config([tmp_path / "upstream.yaml"], ["data.datasets=[{path: demonstrations}]"])
    entry = find("dit4dit")
    assert isinstance(config.model, entry.config_class)
    model = entry.call("build")(config, backend).eval()
    head = golden("full_action_model_sd").tensors
    model.action_model.load_state_dict({key.removeprefix("action_model."): value for key, value in head.items()})
    found = golden("full_joint_state")
    model.draws = ReplayDraws.from_tensors(found.tensors, "fwd.")
    for name, loss in model(recorded_batch()).items():
        torch.testing.assert_close(loss.reshape(1), found[f"fwd.out.{name}"], rtol=1e-5, atol=0)


def test_published_names(tiny_config, build, upstream_facts):
    model = build(tiny_config())
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    assert shapes == upstream_facts["state_dict_shapes"]
    assert len(shapes) == 359
