"""Stands for torch_npu: registers device type "npu" as the real package does, with the attributes the tests need.

Nothing is answered for a name that the real package does not have; every name here exists in 2.7.1 and in 2.13.0.
"""

from __future__ import annotations

import os
import sys

#: Whether torch was there before, and whether it was kept from importing this package by itself.
TORCH_FIRST = "torch" in sys.modules
AUTOLOAD = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")

import torch  # noqa: E402

from torch_npu import npu  # noqa: E402

__version__ = "2.13.0"

torch.utils.rename_privateuse1_backend("npu")
torch._register_device_module("npu", npu)
