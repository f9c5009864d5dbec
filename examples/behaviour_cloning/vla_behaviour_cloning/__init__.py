"""A plain behaviour-cloning transformer, the smallest complete model. Importing this package imports no torch."""

from __future__ import annotations

from vla_behaviour_cloning.config import BehaviourCloningConfig
from vla_train.models import ModelEntry

entry = ModelEntry(
    name="behaviour_cloning",
    config_class=BehaviourCloningConfig,
    build="vla_behaviour_cloning.model:build",
    dataset="vla_behaviour_cloning.data:build_dataset",
    collate="vla_behaviour_cloning.data:collate",
)
