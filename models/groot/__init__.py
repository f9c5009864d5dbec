"""GR00T N1.7: Qwen3-VL features drive an action diffusion transformer. Importing this package imports no torch."""

from __future__ import annotations

from vla_groot.config import GrootConfig
from vla_groot.options import DEFAULTS, OPTIONS
from vla_train.models import ModelEntry

entry = ModelEntry(
    name="groot",
    config_class=GrootConfig,
    build="vla_groot.build:build",
    dataset="vla_groot.data:build_dataset",
    collate="vla_groot.batch:collate",
    import_checkpoint="vla_groot.checkpoint:import_checkpoint",
    export_checkpoint="vla_groot.build:export_checkpoint",
    policy="vla_groot.serving:build_policy",
    outline="vla_groot.outline:outline",
    protocol="zmq",
    defaults=DEFAULTS,
    tiny={"groot_n1_7": "vla_groot.tiny_qwen:save_groot", "qwen3_vl": "vla_groot.tiny_qwen:save_qwen3_vl"},
    options=OPTIONS,
)
