"""Plugins that take their process with them, or never come back."""

from __future__ import annotations

import os
import signal
import time

from tests.conformance.broken.sound import Absent, Present
from vla_backend import hookimpl


class Crashes(Present):
    @hookimpl
    def synchronize(device):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Absent):
    @hookimpl
    def visible_devices_env():
        time.sleep(600)
        return ""
