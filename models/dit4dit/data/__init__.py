"""DiT4DiT's data path."""

from __future__ import annotations

from vla_dit4dit.data.batch import collate
from vla_dit4dit.data.dataset import DiT4DiTDataset, EpisodeRef, build_dataset
from vla_dit4dit.data.report import unnormalize

__all__ = ["DiT4DiTDataset", "EpisodeRef", "build_dataset", "collate", "unnormalize"]
