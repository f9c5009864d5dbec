"""What CANN, HCCL and torch_npu say, and what it means; the particular before the general."""

from __future__ import annotations

from typing import Final

from vla_backend_ascend.errors_device import DEVICE
from vla_backend_ascend.errors_habits import HABITS
from vla_backend_ascend.errors_hccl import HCCL
from vla_backend_ascend.errors_import import IMPORT

ASCEND: Final = (*IMPORT, *HCCL, *HABITS, *DEVICE)
