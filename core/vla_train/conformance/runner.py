"""Runs tiers of checks on a plugin, each group in processes of its own so that a crash or a hang is one check's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from vla_backend import Candidate
from vla_backend.discovery import find
from vla_train.conformance.checks import TIERS, Check, Result, select

RANKS: Final = 2
#: Seconds a process may take to start, and to end after its last check.
START, END = 120.0, 30.0
#: Seconds for which a rank may go on alone after its peer has ended or failed.
ALONE: Final = 60.0
_GROUP: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def run(
    plugin: str | Candidate,
    tiers: Sequence[str] = tuple(TIERS),
    only: Sequence[str] | None = None,
    report: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Check a plugin.

    Args:
        plugin: name of an installed backend, or where to find one.
        tiers: of `TIERS`.
        only: names of single checks.
        report: told each result as it comes.

    Raises:
        BackendError: no such backend, tier or check.
    """
    candidate = plugin if isinstance(plugin, Candidate) else find(plugin)
    checks = select([tier for tier in TIERS if tier in tiers] + [tier for tier in tiers if tier not in TIERS], only)
    results: list[Result] = []
    here: _Survey | None = None
    for (stage, _), group in groupby(checks, key=lambda one: (one.stage, one.name if one.apart else "")):
        waiting = list(group)
        if stage != "light":
            here = here or _survey(candidate)
        for result in _excused(waiting, stage, here) or _run_group(candidate, waiting, stage, here):
            results.append(result)
            report(result)
    return results


@dataclass(frozen=True)
class _Survey:
    """What a plugin says of this machine; `error` if it cannot be asked, `env` by the time limit of collectives."""

    error: str = ""
    ok: bool = False
    reason: str = ""
    device_count: int = 0
    shared: bool = False
    env: dict[str, dict[str, str]] = field(default_factory=dict)


def _survey(candidate: Candidate) -> _Survey:
    command = [sys.executable, "-m", "vla_train.conformance.session", "--survey", json.dumps(asdict(candidate))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START)
    if done.returncode:
        return _Survey(error=done.stderr.strip()[-600:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        return _Survey(error=answer["error"])
    probe = answer["probe"]
    return _Survey("", probe["ok"], probe["reason"], probe["device_count"], probe["shared"], answer["env"])


def _excused(checks: list[Check], stage: str, here: _Survey | None) -> list[Result]:
    """The results of checks that cannot run here; empty if they can."""
    if here is None or stage == "light":
        return []
    if here.error:
        # One failure, not as many as there are checks.
        first, *rest = checks
        failed = Result(first.tier, first.name, "failed", f"The plugin cannot be asked.\n  why: {here.error}", 0.0)
        return [failed, *_skipped(rest, "the plugin cannot be asked")]
    if not here.ok:
        return _skipped(checks, f"no hardware: {here.reason}")
    if stage == "ranks" and not here.shared and here.device_count < RANKS:
        return _skipped(checks, f"needs {RANKS} devices, {here.device_count} visible")
    return []


def _skipped(checks: Sequence[Check], reason: str) -> list[Result]:
    return [Result(one.tier, one.name, "skipped", reason, 0.0) for one in checks]


def _run_group(candidate: Candidate, checks: list[Check], stage: str, here: _Survey | None) -> Iterator[Result]:
    """Run checks of one stage; after a crash the rest go on in new processes."""
    waiting = checks
    while waiting:
        with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
            done = _Session(candidate, waiting, stage, here, Path(folder)).run()
        yield from done
        waiting = waiting[len(done) :]


class _Session:
    """One process, or a pair, working through checks in their order."""

    def __init__(
        self, candidate: Candidate, checks: Sequence[Check], stage: str, here: _Survey | None, folder: Path
    ) -> None:
        self._checks, self._folder = list(checks), folder
        self._ranks = RANKS if stage == "ranks" else 1
        order = {"candidate": asdict(candidate), "checks": [one.key for one in checks], "folder": str(folder)}
        (folder / "order.json").write_text(json.dumps(order))
        self._env = {name: value for name, value in os.environ.items() if name not in _GROUP}
        if stage != "light" and here is not None:
            limit = str(self._checks[0].collective_seconds)
            self._env.update(here.env[limit], VLA_CONFORMANCE_TIMEOUT=limit)
        if self._ranks > 1:
            self._env.setdefault("OMP_NUM_THREADS", "1")
            self._env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
        self._ended: dict[int, float] = {}

    def run(self) -> list[Result]:
        """Results of the checks that were come to, at least one."""
        processes = [self._start(rank) for rank in range(self._ranks)]
        cut = ""
        try:
            while any(process.poll() is None for process in processes) and not cut:
                time.sleep(0.02)
                cut = self._overdue(processes)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        codes = [process.returncode for process in processes]
        ranks = [self._judge(rank, codes[rank], cut) for rank in range(self._ranks)]
        merged = [_merge(results) for results in zip(*ranks, strict=False)]
        return merged or [_crash(self._checks[0], "It ended before its first check", codes[0], self._log(0), 0.0)]

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        env = dict(self._env)
        if self._ranks > 1:
            env.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self._ranks))
            env.update(LOCAL_WORLD_SIZE=str(self._ranks))
        command = [sys.executable, "-m", "vla_train.conformance.session", str(self._folder / "order.json")]
        with (self._folder / f"log-{rank}").open("wb") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _overdue(self, processes: list[subprocess.Popen[bytes]]) -> str:
        """Why the processes are to be ended now, "" while they may go on."""
        for rank, process in enumerate(processes):
            if process.poll() is not None:
                self._ended.setdefault(rank, time.time())
                continue
            lines, since = self._lines(rank)
            last = lines[-1] if lines else {}
            limit, what = START, "its process did not start"
            if "begin" in last:
                one = next(check for check in self._checks if check.key == last["begin"])
                limit, what = one.seconds, "it did not finish"
            elif lines:
                limit, what = END, "its process did not end after the last check"
            if time.time() - since > limit:
                return f"{what} within {limit:.0f} s"
            alone = min(self._ended.values(), default=time.time())
            if time.time() - alone > ALONE:
                return f"it went on for {ALONE:.0f} s after its peer had ended"
        return ""

    def _lines(self, rank: int) -> tuple[list[dict[str, Any]], float]:
        path = self._folder / f"results-{rank}.jsonl"
        try:
            complete = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            return [json.loads(line) for line in complete], path.stat().st_mtime
        except OSError:
            return [], (self._folder / "order.json").stat().st_mtime

    def _judge(self, rank: int, code: int, cut: str) -> list[Result]:
        """Results of one rank, that of the check in which it ended included."""
        lines, since = self._lines(rank)
        results = [Result(**line["result"]) for line in lines if "result" in line]
        begun = [line["begin"] for line in lines if "begin" in line]
        if len(begun) > len(results):
            one = next(check for check in self._checks if check.key == begun[-1])
            if one.may_end_process and not cut:
                note = f"the vendor's library ended the process (exit code {code})"
                return [*results, Result(one.tier, one.name, "passed", note, 0.0)]
            results.append(_crash(one, cut, code, self._log(rank), time.time() - since))
        elif code and results and results[-1].outcome != "failed" and len(results) == len(self._checks):
            last = self._checks[-1]
            # A library that has raised in time may still abort at exit, with threads that wait for the peer.
            if cut or not last.may_end_process:
                crashed = _crash(last, cut or "its process failed after the last check", code, self._log(rank), 0.0)
                results[-1] = replace(crashed, seconds=results[-1].seconds)
        return results

    def _log(self, rank: int) -> str:
        path = self._folder / f"log-{rank}"
        return path.read_text(errors="replace").strip()[-500:] if path.exists() else ""


def _crash(one: Check, cut: str, code: int, log: str, seconds: float) -> Result:
    lines = [f"{one.says or one.name} Instead: {cut or f'the process ended with exit code {code}'}."]
    if log:
        lines.append(f"  why: its last output was: {log}")
    lines.append("  fix: run the check alone under a debugger, or see what it calls: vla_train/conformance")
    return Result(one.tier, one.name, "failed", "\n".join(lines), seconds)


def _merge(results: Sequence[Result]) -> Result:
    """One result of all ranks: the worst; of several failures the first, for the others may be its echo."""
    for outcome in ("failed", "skipped"):
        found = [(result.seconds, rank) for rank, result in enumerate(results) if result.outcome == outcome]
        if found:
            rank = min(found)[1]
            prefix = f"rank {rank}: " if len(results) > 1 and outcome == "failed" else ""
            return replace(results[rank], message=prefix + results[rank].message)
    return results[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
