"""Layers and random draws shared by the models. Importing this package imports torch."""

from __future__ import annotations

from vla_train.nn.dit import DiT, DiTBlock, DiTSettings, KeyValue
from vla_train.nn.draws import DrawError, Draws, ReplayDraws
from vla_train.nn.flow_matching import discretise, euler_times, interpolate, masked_mean_square, velocity_target
from vla_train.nn.frozen import WithFrozenNetworks
from vla_train.nn.layers import LayerNorm, Linear, sinusoidal_position_table, sinusoidal_time

__all__ = [
    "DiT",
    "DiTBlock",
    "DiTSettings",
    "DrawError",
    "Draws",
    "KeyValue",
    "LayerNorm",
    "Linear",
    "ReplayDraws",
    "WithFrozenNetworks",
    "discretise",
    "euler_times",
    "interpolate",
    "masked_mean_square",
    "sinusoidal_position_table",
    "sinusoidal_time",
    "velocity_target",
]
