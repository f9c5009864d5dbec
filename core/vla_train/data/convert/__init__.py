"""Converting datasets: between LeRobot v2.x and v3.0, and re-encoding their videos."""

from __future__ import annotations

from vla_train.data.convert.run import Options, convert_dataset

__all__ = ["Options", "convert_dataset"]
