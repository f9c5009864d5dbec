"""Running a check in a process of its own: it may crash, hang or fail to import torch without ending the doctor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vla_backend.health import Check

MODULE: Final = "vla_train.doctor.child"
#: In front of the line of JSON with which a child answers; libraries print as they like.
MARK: Final = "vla-doctor:"


@dataclass
class Child:
    """A started process and what it wrote.

    Attributes:
        name: of the check.
        answer: what it answered, `None` without one.
        problem: why there is none.
    """

    name: str
    process: subprocess.Popen[str]
    answer: dict[str, Any] | None = None
    problem: str = ""
    errors: list[str] = field(default_factory=list)

    def wait(self, deadline: float) -> None:
        """Stay until it has answered or time is up; then it and its children are ended.

        Args:
            deadline: on `time.monotonic()`'s clock.
        """
        try:
            out, err = self.process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            self.problem = "no answer within its time limit: it hangs, or the machine is very busy"
        lines = [line for line in out.splitlines() if line.startswith(MARK)]
        if lines:
            self.answer, self.problem = json.loads(lines[-1].removeprefix(MARK)), ""
            return
        self.errors = [line for line in err.splitlines() if line.strip()]
        code = self.process.returncode
        if not self.problem:
            ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self.problem = f"{ended}: {self.errors[-1].strip()}" if self.errors else ended

    def kill(self) -> None:
        """End it and what it started; nothing if it has ended by itself."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def check(self, name: str) -> Check:
        """The answer as a check; without one a failed check that says why."""
        if self.answer is None:
            remedy = "run it by itself: " + " ".join(["python -m", MODULE, self.name])
            return Check(name, "failed", self.problem, remedy)
        return Check(name, self.answer["outcome"], self.answer["detail"], self.answer.get("remedy", ""))


def start(name: str, env: Mapping[str, str], arguments: Sequence[str] = ()) -> Child:
    """Start the check `name` of `vla_train.doctor.child` in a process group of its own."""
    return launch(name, [sys.executable, "-m", MODULE, name, *arguments], env)


def launch(name: str, command: Sequence[str], env: Mapping[str, str]) -> Child:
    """Start any command as the child `name`."""
    process = subprocess.Popen(
        list(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=dict(env),
        start_new_session=True,
    )
    return Child(name, process)
