"""Where every rank is, so that a rank that hangs or dies can be named by those that wait for it.

Each rank writes `ranks/<rank>.json` in the run's folder: step, phase and samples. A thread refreshes it and reads those
of the others. No torch here: the launcher reads these files to say where a killed rank was.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from vla_train.launch.failure import FOLDER_ENV, report
from vla_train.train.errors import RankLost

FOLDER: Final = "ranks"
DATA, FORWARD, BACKWARD, UPDATE = "loading data", "forward", "backward", "update"
EVALUATE, SAVE = "evaluation", "checkpoint"


@dataclass(frozen=True)
class Place:
    """Where a rank is.

    Attributes:
        turn: counts the phases of a step.
        line: of the code its main thread runs.
        waits: whether that is a collective.
        beat: counts refreshes.
    """

    rank: int
    step: int = 0
    phase: str = DATA
    turn: int = 0
    line: str = ""
    waits: bool = False
    sample_ids: tuple[Any, ...] = ()
    beat: int = 0

    @property
    def order(self) -> tuple[int, int]:
        return self.step, self.turn

    @property
    def text(self) -> str:
        return f"step {self.step} ({', '.join(filter(None, [self.phase, self.line]))})"


@dataclass
class _Seen:
    """What this rank has seen of another, and when it last changed."""

    place: Place
    moved: float = field(default_factory=time.monotonic)
    beaten: float = field(default_factory=time.monotonic)

    def update(self, place: Place) -> None:
        now = time.monotonic()
        if place.order != self.place.order:
            self.moved = now
        if place.beat != self.place.beat:
            self.beaten = now
        self.place = place


class Heartbeat:
    """Enter it around the training loop and call `at` whenever the rank goes on.

    A rank that has waited for another until `timeout_s` ends its process with an error that names that one; the
    launcher then ends the others. The time limit of collectives, which the process group was made with, does the same
    where it fires first; `explain` names the rank then.

    Args:
        run: folder of the run.
        timeout_s: `parallel.dist_timeout`.
    """

    def __init__(self, run: Path, rank: int, world_size: int, timeout_s: float) -> None:
        self._folder, self._timeout = run / FOLDER, timeout_s
        self._interval = min(5.0, timeout_s / 10)
        self._me = _Seen(Place(rank))
        self._others = {other: _Seen(Place(other)) for other in range(world_size) if other != rank}
        self._end, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._publish()
        launcher = os.environ.get(FOLDER_ENV)
        if launcher:
            Path(launcher, f"rank_{self._me.place.rank}.place").write_text(
                str(self._file(self._me.place.rank).resolve())
            )
        if self._others:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        if exc[0] is None:
            self._file(self._me.place.rank).unlink(missing_ok=True)

    def at(self, step: int, phase: str, sample_ids: Sequence[Any] | None = None) -> None:
        """This rank begins `phase` of `step`; samples are written down at once, lest the rank dies of them."""
        with self._lock:
            now = self._me.place
            kept = now.sample_ids if sample_ids is None else tuple(sample_ids)
            turn = now.turn + 1 if step == now.step else 0
            self._me.update(replace(now, step=step, phase=phase, turn=turn, sample_ids=kept))
        if sample_ids is not None:
            self._publish()

    def explain(self, error: Exception) -> Exception:
        """`error` of a collective as one that names the rank that did not take part, if one can be told."""
        if not self._others or not _of_a_collective(error):
            return error
        self._read()
        late = self._late()
        return error if late is None else self._lost(late, str(error).splitlines()[0])

    def _watch(self) -> None:
        while not self._end.wait(self._interval):
            with self._lock:
                line, waits = _main_thread()
                self._me.update(replace(self._me.place, line=line, waits=waits, beat=self._me.place.beat + 1))
            self._publish()
            self._read()
            late = self._late()
            # A little early, so that this message comes before the library's own end.
            since = time.monotonic() - (self._timeout - self._interval)
            if late and self._me.moved < since and self._others[late.rank].moved < since and not self._end.is_set():
                code = report(self._lost(late, f"no progress for {self._timeout:g} s (parallel.dist_timeout)"))
                os._exit(code)

    def _late(self) -> Place | None:
        """The rank that this one waits for.

        One whose process stands still; else the one furthest behind; else one that computes at the same place while
        this one is in a collective.
        """
        silent = [s for s in self._others.values() if time.monotonic() - s.beaten > 4 * self._interval]
        behind = [s for s in self._others.values() if s.place.order < self._me.place.order]
        if not silent and not behind and _main_thread()[1]:
            behind = [s for s in self._others.values() if s.place.order == self._me.place.order and not s.place.waits]
        found = min(silent or behind, key=lambda seen: seen.place.order, default=None)
        return found.place if found else None

    def _lost(self, late: Place, why: str) -> RankLost:
        samples = ", ".join(map(str, late.sample_ids)) or "unknown"
        return RankLost(
            f"Rank {late.rank} hangs or died in {late.text}; rank {self._me.place.rank} waited for it in "
            f"step {self._me.place.step} ({self._me.place.phase}).",
            why=f"{why}; samples of that rank: {samples} (saved in {self._file(late.rank)})",
            fix="look at that rank's messages above and at these samples; the same command continues from the newest "
            "checkpoint. If it was only slow, raise parallel.dist_timeout",
        )

    def _file(self, rank: int) -> Path:
        return self._folder / f"{rank:05d}.json"

    def _publish(self) -> None:
        draft = self._file(self._me.place.rank).with_suffix(f".{threading.get_ident()}.tmp")
        try:
            draft.write_text(json.dumps(asdict(self._me.place)))
            os.replace(draft, self._file(self._me.place.rank))
        except OSError:
            pass  # a full disk must not end a run that has nothing to save yet

    def _read(self) -> None:
        for rank, seen in self._others.items():
            place = read_place(self._file(rank))
            if place is not None:
                seen.update(place)


def read_place(path: Path) -> Place | None:
    """What a rank wrote last, if it can be read."""
    try:
        raw = json.loads(path.read_text())
        return Place(**raw | {"sample_ids": tuple(raw["sample_ids"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _main_thread() -> tuple[str, bool]:
    """The line that the main thread runs, and whether a collective called it or an engine that makes collectives."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "", False
    line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    for _ in range(8):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("torch.distributed", "deepspeed.comm", "torch.autograd.graph")):
            return line, True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return line, False


def _of_a_collective(error: Exception) -> bool:
    text = f"{type(error).__name__} {error}".lower()
    return isinstance(error, RuntimeError) and any(
        word in text for word in ("timed out", "timeout", "connection", "peer", "dist", "gloo", "collective")
    )
