"""What a check of a machine answers, and how to look into a library without loading it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

#: Entry-point group of a plugin's own checks: the name is the backend's, the value a function `(env) -> [Check]` that
#: imports neither torch nor the vendor's packages.
GROUP: Final = "vla.doctor"
Outcome = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """One line of `vla doctor`.

    Attributes:
        name: what was looked at.
        outcome: "failed" keeps training from running; "warning" costs speed or may bite later; "skipped" says why the
            question does not arise.
        detail: the finding.
        remedy: what to do about it.
    """

    name: str
    outcome: Outcome
    detail: str
    remedy: str = ""


def missing_libraries(library: Path, env: Mapping[str, str], limit_s: float = 20) -> list[str] | None:
    """Names of the shared libraries that `library` needs, itself or through others, and the linker does not find.

    `None` if `ldd` is missing or cannot say.
    """
    if shutil.which("ldd") is None:
        return None
    try:
        done = subprocess.run(["ldd", str(library)], capture_output=True, text=True, timeout=limit_s, env=dict(env))
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode and "not found" not in done.stdout:
        return None
    return sorted(set(re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)))
