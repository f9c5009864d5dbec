"""Upstream's recorded numbers met on the simulated NPU; whole training steps are in test_training.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.models.dit4dit.test_golden_head import CASES as HEADS
from tests.models.dit4dit.test_golden_head import head_config
from tests.train import golden
from vla_backend import Backend, activate
from vla_dit4dit.action_head import FlowMatchingActionHead
from vla_dit4dit.config import ActionHeadConfig, BackboneConfig, DiT4DiTConfig, FlowMatchingConfig
from vla_dit4dit.cosmos import load_parts
from vla_dit4dit.model import DiT4DiT
from vla_train.nn import ReplayDraws

pytestmark = pytest.mark.ascend_sim
BACKBONES = ("joint_logitnormal", "infer_single_frame", "joint_pixel_l1_2steps", "joint_latent_mse_3steps")
Recorded = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def backend() -> Backend:
    backend = activate("ascend")
    backend.load_stack()
    backend.local_device(0)
    return backend


def recorded(name: str) -> tuple[Recorded, dict[str, str]]:
    """Tensors on the device, and the JSON beside them."""
    with safe_open(golden.DATA / f"{name}.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key).npu() for key in file.keys()}  # noqa: SIM118
        return tensors, file.metadata() or {}


def assert_gradients(found: Recorded, prefix: str, network: torch.nn.Module, tolerance: float) -> None:
    seen = 0
    for name, parameter in network.named_parameters():
        norm = found.get(f"{prefix}gradnorm.{name}")
        if norm is not None and norm.item() != -1:
            assert parameter.grad.norm().item() == pytest.approx(norm.item(), rel=1e-4, abs=tolerance), name
            seen += 1
    assert seen > 10


@pytest.mark.parametrize("case", HEADS)
def test_action_head(backend: Backend, case: str) -> None:
    found, facts = recorded(f"action_head_{case}")
    head = FlowMatchingActionHead(head_config(json.loads(facts["config"]))).eval()
    head.load_state_dict({key[3:]: value for key, value in found.items() if key.startswith("sd.")})
    head.to(backend.device)
    batch = (found["in.vl_embs"], found["in.actions"], found["in.action_mask"], found.get("in.state"))
    loss = head.loss(*batch, draws=ReplayDraws.from_tensors(found, "fwd."))
    assert loss.device.type == "npu"
    torch.testing.assert_close(loss.reshape(1), found["fwd.out.loss"], rtol=1e-5, atol=0)
    loss.backward()
    assert_gradients(found, "fwd.", head, 1e-6)
    if "pred.out.actions" in found:
        sampled = head.sample(
            found["in.vl_embs"], found.get("in.state"), draws=ReplayDraws.from_tensors(found, "pred.")
        )
        torch.testing.assert_close(sampled, found["pred.out.actions"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", BACKBONES)
def test_backbone(backend: Backend, case: str) -> None:
    found, facts = recorded(f"backbone_{case}")
    settings: dict[str, Any] = {
        "path": str(golden.DATA / "tiny_pipe"),
        "extract_layer": 2,
        "max_sequence_length": 192,
        "prompt_disk_cache": None,
        "flow_matching": FlowMatchingConfig(
            time_distribution="logit_normal", high_sigma_ratio=0.5, high_sigma_min=0.98
        ),
        "latent_mse_unit_range": True,
        "pixel_range_by_minimum": True,
    }
    settings |= {key.rsplit(".", 1)[1]: value for key, value in json.loads(facts["overrides"]).items()}
    head = ActionHeadConfig(size="DiT-T", hidden_size=40, max_seq_len=64, num_layers=4, output_dim=40)
    config = DiT4DiTConfig(backbone=BackboneConfig(**settings), action_head=head)
    model = DiT4DiT(config, load_parts(config.backbone, backend), backend, clip_frames=5).eval().to(backend.device)

    output = model.backbone_interface(
        found["in.images"],
        json.loads(facts["prompts"]),
        draws=ReplayDraws.from_tensors(found),
        features=True,
        video_loss=True,
    )

    torch.testing.assert_close(output.features, found["out.hidden"], rtol=1e-4, atol=1e-5)
    if "out.future_video_loss" not in found:
        assert output.future_video_loss is None
        return
    torch.testing.assert_close(output.future_video_loss.reshape(1), found["out.future_video_loss"], rtol=1e-5, atol=0)
    output.future_video_loss.backward()
    if case == "joint_logitnormal":
        assert_gradients(found, "", model.backbone_interface.extractor, 1e-7)
