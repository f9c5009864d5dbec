"""Asks a slow tool when it is listed."""

from __future__ import annotations

import time

from tests.conformance.broken.sound import Absent

time.sleep(0.3)
plugin = Absent
