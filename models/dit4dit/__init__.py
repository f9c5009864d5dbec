"""DiT4DiT (video DiT features for an action DiT) on Cosmos-Predict2.5. Importing this package imports no torch."""

from __future__ import annotations

from vla_dit4dit.config import DiT4DiTConfig
from vla_dit4dit.upstream_config import translate
from vla_train.models import ModelEntry

entry = ModelEntry(
    name="dit4dit",
    config_class=DiT4DiTConfig,
    build="vla_dit4dit.model:build",
    dataset="vla_dit4dit.data.dataset:build_dataset",
    collate="vla_dit4dit.data.batch:collate",
    translate=translate,
    import_checkpoint="vla_dit4dit.checkpoint:import_checkpoint",
    export_checkpoint="vla_dit4dit.checkpoint:export_checkpoint",
    dataset_folders="vla_dit4dit.data.selection:dataset_folders",
    tiny={"cosmos_predict2_5": "vla_dit4dit.tiny:save"},
    policy="vla_dit4dit.policy:build_policy",
    outline="vla_dit4dit.outline:outline",
)
