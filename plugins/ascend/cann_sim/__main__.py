"""`python -m vla_backend_ascend.cann_sim [options] -- COMMAND`: run a program on simulated NPUs."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from vla_backend_ascend.cann_sim import build, faults
from vla_backend_ascend.cann_sim.faults import Fault
from vla_backend_ascend.cann_sim.settings import Settings

EXAMPLES = """\
  vla sim ascend --devices 2 -- vla train --backend ascend --processes 2 --config my.yaml
  vla sim ascend --memory 8 --fault device_lost:rank=1,step=5 -- vla train --backend ascend --config my.yaml
  vla sim ascend --report times.txt -- python my_script.py"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a simulation; `vla sim ascend` takes the same."""
    add = parser.add_argument
    add("--devices", type=int, default=1, help="number of NPUs (default: 1)")
    add("--memory", type=float, default=64.0, metavar="GB", help="memory of each (default: 64)")
    add("--rules", choices=("refuse", "warn"), default="refuse", help="where a 910B would refuse (default: refuse)")
    add("--fault", action="append", default=[], metavar="SPEC", help="inject a fault, see below; may be repeated")
    add("--task-queue", action="store_true", help="leave torch_npu's queue of launches on, slower here")
    add("--report", type=Path, help="append the time per operator of every process to this file")
    parser.description = "Run a program, children included, on a simulated CANN with the installed torch_npu."
    parser.epilog = f"examples:\n{EXAMPLES}\n\n{faults.__doc__}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def start(options: argparse.Namespace, command: list[str]) -> int:
    """Run `command` in a simulation with these options; answers its exit code, 2 for what cannot be started."""
    try:
        wanted = tuple(Fault.parse(text) for text in options.fault)
        settings = Settings(options.devices, options.memory, options.rules, wanted, options.task_queue, options.report)
        toolkit = build.toolkit()
    except (ValueError, build.BuildError) as error:
        print(error, file=sys.stderr)
        return 2
    return run(settings, toolkit, command)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; answers its exit code."""
    parser = argparse.ArgumentParser(prog="python -m vla_backend_ascend.cann_sim")
    add_arguments(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND ARGUMENTS")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command; put it after --")
    return start(options, command)


def run(settings: Settings, toolkit: Path, command: list[str]) -> int:
    """Run `command` in a simulation of its own and clean up after it."""
    with tempfile.TemporaryDirectory(prefix="cann_sim-", dir=_fast_directory(), ignore_cleanup_errors=True) as session:
        settings.make_machine(Path(session))
        env = settings.environment(Path(session), toolkit, os.environ)
        env["CANN_SIM_PYTHON"] = sys.executable
        if command[0] == "python" or shutil.which(command[0]) is None:  # this Python, and the scripts beside it
            command = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
        try:
            child = subprocess.Popen(command, env=env)
        except OSError as error:
            print(f"simulated CANN: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        previous = {
            sig: signal.signal(sig, lambda number, _: child.send_signal(number))
            for sig in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            code = child.wait()
        finally:
            for sig, handler in previous.items():
                signal.signal(sig, handler)
    return code if code >= 0 else 128 - code


def _fast_directory() -> str | None:
    """Memory-backed where there is room for the data that collectives exchange; None: the usual place."""
    shared = "/dev/shm"
    if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 512 << 20:
        return shared
    return None


if __name__ == "__main__":
    sys.exit(main())
