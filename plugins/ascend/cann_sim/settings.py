"""What a simulation is started with, and the environment variables that carry it to every child process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vla_backend_ascend.cann_sim.faults import Fault

STARTUP = Path(__file__).with_name("startup")  # holds a sitecustomize.py, which Python imports in every process
MAX_DEVICES = 16


@dataclass(frozen=True)
class Settings:
    """One simulation.

    `memory_gb` is the capacity of each device. `rules` is "refuse" or "warn": what happens where a 910B would refuse.
    `task_queue` leaves torch_npu's queue of launches as the program sets it (TASK_QUEUE_ENABLE); by default it is off,
    which is faster here and reports errors where they happen. `report` is a file to which every process appends the
    time it spent per operator.
    """

    devices: int = 1
    memory_gb: float = 64.0
    rules: str = "refuse"
    faults: tuple[Fault, ...] = ()
    task_queue: bool = False
    report: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MAX_DEVICES:
            raise ValueError(f"--devices must be 1 to {MAX_DEVICES}, not {self.devices}")
        if self.memory_gb <= 0:
            raise ValueError(f"--memory must be positive, not {self.memory_gb}")
        if self.rules not in ("refuse", "warn"):
            raise ValueError(f"--rules must be 'refuse' or 'warn', not '{self.rules}'")

    def make_machine(self, session: Path) -> None:
        """Put the files of a driver below `session/root`: the device nodes and the driver's version."""
        devices = session / "root" / "dev"
        driver = session / "root" / "usr/local/Ascend/driver"
        devices.mkdir(parents=True)
        (driver / "lib64").mkdir(parents=True)
        for name in (*(f"davinci{n}" for n in range(self.devices)), "davinci_manager", "devmm_svm", "hisi_hdc"):
            (devices / name).touch()
        (driver / "version.info").write_text("Version=24.1.rc3-simulated\n")

    def environment(self, session: Path, toolkit: Path, env: Mapping[str, str]) -> dict[str, str]:
        """`env` for a process on the simulated machine; what CANN's set_env.sh sets points into `toolkit`."""
        out = {name: value for name, value in env.items() if not name.startswith("CANN_SIM_")}
        out.update(
            CANN_SIM_SESSION=str(session),
            CANN_SIM_TOOLKIT=str(toolkit),
            CANN_SIM_ROOT=str(session / "root"),
            CANN_SIM_DEVICES=str(self.devices),
            CANN_SIM_MEMORY=str(int(self.memory_gb * 2**30)),
            CANN_SIM_RULES=self.rules,
            ASCEND_HOME_PATH=str(toolkit),
            ASCEND_TOOLKIT_HOME=str(toolkit),
            ASCEND_OPP_PATH=str(toolkit / "opp"),
        )
        if self.task_queue:
            out["CANN_SIM_TASK_QUEUE"] = "1"
        if self.faults:
            out["CANN_SIM_FAULTS"] = ";".join(fault.encode() for fault in self.faults)
        if self.report is not None:
            out["CANN_SIM_REPORT"] = str(self.report.absolute())
        for name, first in (("LD_LIBRARY_PATH", toolkit / "lib64"), ("PATH", toolkit / "bin"), ("PYTHONPATH", STARTUP)):
            out[name] = os.pathsep.join([str(first), *filter(None, [out.get(name)])])
        return out
