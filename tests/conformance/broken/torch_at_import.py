"""Imports torch when it is listed."""

from __future__ import annotations

import torch

from tests.conformance.broken.sound import Absent

DTYPE = torch.float32
plugin = Absent
