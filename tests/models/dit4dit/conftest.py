from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from vla_backend import Backend, activate
from vla_dit4dit.config import ActionHeadConfig, BackboneConfig, DiT4DiTConfig, FlowMatchingConfig
from vla_dit4dit.cosmos import load_parts
from vla_dit4dit.model import DiT4DiT

DATA = Path(__file__).parents[2] / "data" / "dit4dit"


@dataclasses.dataclass
class Golden:
    """Recorded tensors of one upstream run and the JSON values stored beside them."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def get(self, name: str) -> torch.Tensor | None:
        return self.tensors.get(name)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    return DATA


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    def load(name: str) -> Golden:
        with safe_open(DATA / f"{name}.safetensors", "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        facts = {}
        for key, value in metadata.items():
            try:
                facts[key] = json.loads(value)
            except json.JSONDecodeError:
                facts[key] = value
        return Golden(tensors, facts)

    return load


@pytest.fixture(scope="session")
def upstream_facts() -> dict[str, Any]:
    return json.loads((DATA / "upstream_facts.json").read_text())


@pytest.fixture(scope="session")
def backend() -> Backend:
    torch.set_num_threads(1)
    backend = activate("cpu")
    backend.load_stack()
    backend.local_device(0)
    return backend


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., DiT4DiTConfig]:
    """The configuration of the recorded runs; keywords override the top level, `backbone` and `head` the sections."""

    def make(backbone: dict[str, Any] | None = None, head: dict[str, Any] | None = None, **top: Any) -> DiT4DiTConfig:
        flow = FlowMatchingConfig(time_distribution="logit_normal", high_sigma_ratio=0.5, high_sigma_min=0.98)
        settings: dict[str, Any] = {
            "path": str(DATA / "tiny_pipe"),
            "extract_layer": 2,
            "max_sequence_length": 192,
            # A test that counts what the text encoder does must not find another's embeddings.
            "prompt_disk_cache": None,
            "flow_matching": flow,
            "latent_mse_unit_range": True,
            "pixel_range_by_minimum": True,
        }
        shape: dict[str, Any] = {
            "size": "DiT-T",
            "hidden_size": 40,
            "max_seq_len": 64,
            "num_layers": 4,
            "output_dim": 40,
            "action_dim": 8,
            "state_dim": 16,
        }
        return DiT4DiTConfig(
            backbone=BackboneConfig(**{**settings, **(backbone or {})}),
            action_head=ActionHeadConfig(**{**shape, **(head or {})}),
            **top,
        )

    return make


@pytest.fixture(scope="session")
def build(backend: Backend, golden: Callable[[str], Golden]) -> Callable[..., DiT4DiT]:
    """A model in evaluation mode with the weights of the recorded runs."""

    def make(config: DiT4DiTConfig, clip_frames: int | None = 5, **options: Any) -> DiT4DiT:
        model = DiT4DiT(config, load_parts(config.backbone, backend), backend, clip_frames=clip_frames, **options)
        if model.action_model is not None:
            weights = golden("full_action_model_sd").tensors
            own = model.action_model.state_dict()
            named = {key.removeprefix("action_model."): value for key, value in weights.items()}
            fitting = {key: named[key] for key in own if key in named and named[key].shape == own[key].shape}
            model.action_model.load_state_dict(fitting, strict=False)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def recorded_batch(golden: Callable[[str], Golden]) -> Callable[..., dict[str, Any]]:
    """The batch of the recorded full runs."""

    def make(case: str = "full_joint_state", prefix: str = "") -> dict[str, Any]:
        found = golden(case)
        prompts = golden("full_joint_state").facts["prompts"]
        return {
            "images": found[f"{prefix}in.images"],
            "lang": prompts,
            "action": found[f"{prefix}in.action"].float(),
            "action_mask": found[f"{prefix}in.action_mask"],
            "state": found[f"{prefix}in.state"].float(),
        }

    return make
