"""The plugin is found, says what is missing, and passes the conformance kit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vla_backend import activate, candidates
from vla_backend_paper import hardware

NAME = "paper"


def check(*tiers: str) -> None:
    """`vla plugin check`, which tells every mistake by name."""
    command = [sys.executable, "-m", "vla_train.cli", "plugin", "check", NAME]
    done = subprocess.run([*command, *tiers], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_is_installed() -> None:
    assert candidates()[NAME].target == "vla_backend_paper"


def test_contract() -> None:
    check("--tier", "contract")


def test_everything_on_the_device() -> None:
    probe = activate(NAME, check_available=False).probe()
    if not probe.ok:
        pytest.skip(probe.reason)
    check()


def test_missing_hardware_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "present", lambda: 0)
    probe = activate(NAME, check_available=False).probe({})
    assert not probe.ok
    assert probe.reason
    assert probe.remedy


def test_mask() -> None:
    assert hardware.visible({}, 4) == 4
    assert hardware.visible({hardware.MASK: "1,3"}, 4) == 2
    assert hardware.visible({hardware.MASK: "7"}, 4) == 0
    assert hardware.visible({hardware.MASK: ""}, 4) == 0


def test_vendor_errors_are_translated() -> None:
    backend = activate(NAME, check_available=False)
    known = backend.translate_error(RuntimeError(f"{hardware.DEVICE_TYPE}: out of memory, tried to allocate 2 GiB"))
    assert known.known
    assert "batch_size" in known.remedy
    assert not backend.translate_error(RuntimeError("something else entirely")).known
