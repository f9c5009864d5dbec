"""Faults that can be injected, as written on the command line: `kind[:key=value,...]`.

| kind | what happens |
|---|---|
| device_lost | this and every later call of the process fails, error 507899 |
| ecc | the same with the error of an uncorrectable memory fault, 507054 |
| hang | the process stops there for ever, alive |
| die | the process ends at once, as if killed |
| oom | one allocation of device memory fails |
| slow_link | collectives take as long as a link of `mbps` megabytes per second needs |

Keys: `rank` (default: every rank) and one of `step`, `operator`, `collective`, `allocation`: after so many finished
optimizer steps, operators, collectives or allocations of that process (default `step=0`: from the start). A fault
happens once in a simulation; a job that is started again in the same simulation meets no second one.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("device_lost", "ecc", "hang", "die", "oom", "slow_link")
UNITS = ("step", "operator", "collective", "allocation")


@dataclass(frozen=True)
class Fault:
    kind: str
    rank: int = -1  # -1: every rank
    unit: str = "step"
    count: int = 0
    mbps: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read `kind[:key=value,...]`.

        Raises:
            ValueError: unknown kind or key, or a value that is no number.
        """
        kind, _, rest = text.partition(":")
        if kind not in KINDS:
            raise ValueError(f"unknown fault '{kind}' in '{text}'; known are {', '.join(KINDS)}")
        rank, unit, count, mbps = -1, "step", 0, 0.0
        for part in filter(None, rest.split(",")):
            key, _, value = part.partition("=")
            try:
                if key == "rank":
                    rank = int(value)
                elif key in UNITS:
                    unit, count = key, int(value)
                elif key == "mbps":
                    mbps = float(value)
                else:
                    raise ValueError(f"unknown key '{key}' in '{text}'; known are rank, mbps, {', '.join(UNITS)}")
            except ValueError as error:
                raise (
                    error if "unknown key" in str(error) else ValueError(f"'{part}' in '{text}' is no number")
                ) from error
        if (kind == "slow_link") != (mbps > 0):
            raise ValueError(f"'{text}': mbps belongs to slow_link, and slow_link needs it")
        return cls(kind, rank, unit, count, mbps)

    def encode(self) -> str:
        """The form that src/faults.c reads; the amount of a slow link is in bytes per second."""
        return f"{self.kind} {self.rank} {self.unit} {self.count} {self.mbps * 1e6:.0f}"
