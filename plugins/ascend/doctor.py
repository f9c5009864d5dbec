"""What `vla doctor` asks on an Ascend host: the version set, driver and health, libraries, variables, HCCL's ports.

Reads files, package metadata and `npu-smi`; imports neither torch nor torch_npu, which may be what is broken.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from packaging.specifiers import SpecifierSet

from vla_backend.health import Check, missing_libraries
from vla_backend.installed import distribution_version, package_folder, torch_build
from vla_backend_ascend import environment, hardware, stack
from vla_backend_ascend.doctor_smi import smi_checks
from vla_backend_ascend.versions import numbers, table

#: Import name of a distribution where they differ.
_MODULES: Final = {"pyyaml": "yaml", "attrs": "attr"}
_REMEDIES: Final = (
    (r"libascend_hal|libdrv|libmmpa", "install the driver, or mount the host's /usr/local/Ascend/driver"),
    (r"libascendcl|libhccl|libge_|libgraph|libacl|libruntime|libopapi|libmsprof", "source the set_env.sh of CANN"),
    (r"libtorch|libc10", "start through `vla`, which puts the folders of torch's libraries on LD_LIBRARY_PATH"),
    (r"libgomp|libstdc\+\+|libopenblas", "install the system's package of this library"),
)


def checks(env: Mapping[str, str]) -> Iterator[Check]:
    """Every finding, the lowest layer first; `env` is that of the job."""
    yield from _devices(env)
    yield from _driver()
    yield from _cann(env)
    yield from _torch_npu(env)
    yield from _undeclared()
    yield from _libraries(env)
    yield from _mx_driving()
    yield from _variables(env)
    yield from _ports(env)


def _devices(env: Mapping[str, str]) -> Iterator[Check]:
    nodes = hardware.devices()
    if not nodes:
        yield Check(
            "npu nodes",
            "failed",
            "there is no /dev/davinci<n>",
            "install the driver on the host; give a container its NPUs (--device /dev/davinci0 ..., or the Ascend "
            "runtime of Docker)",
        )
        return
    for problem in stack.driver_problems(env):
        yield Check("npu nodes", "failed", problem.reason, problem.remedy)
    mask = hardware.visible(env.get(hardware.MASK), len(nodes))
    if mask.problem:
        yield Check("npu nodes", "failed", mask.problem, mask.remedy)
    yield Check("npu nodes", "ok", f"{len(nodes)} x /dev/davinci<n>, {mask.count} visible")


def _driver() -> Iterator[Check]:
    version, chosen = hardware.driver_version(), table().find(distribution_version("torch_npu"))
    lowest = chosen.driver if chosen else ""
    if not version:
        yield Check(
            "driver",
            "warning",
            "its version is not to be seen (driver/version.info)",
            "mount /usr/local/Ascend/driver into the container",
        )
    elif lowest and numbers(version) < numbers(lowest):
        yield Check(
            "driver",
            "failed",
            f"driver {version}; {chosen.torch_npu if chosen else ''} is known to work from {lowest} on",
            f"install driver {lowest} or later on the host",
        )
    else:
        known = f", known to work from {lowest} on" if lowest else "; no lowest driver is published for this set"
        yield Check("driver", "ok", f"driver {version}{known}")
    yield from smi_checks()


def _cann(env: Mapping[str, str]) -> Iterator[Check]:
    problems = list(stack.cann_problems(env))
    for problem in problems:
        yield Check("CANN", "failed", problem.reason, problem.remedy)
    home = hardware.cann_home(env)
    if problems or home is None:
        return
    version, chosen = hardware.cann_version(home), table().find(distribution_version("torch_npu"))
    if not version:
        yield Check("CANN", "warning", f"the version of {home} is not to be seen", "compare it with docs/ascend.md")
    elif chosen is None or not chosen.cann:
        yield Check("CANN", "ok", f"CANN {version}; which one this torch_npu was made for is not published")
    elif not any(_same(version, known) for known in chosen.cann):
        yield Check(
            "CANN",
            "warning",
            f"CANN {version}; torch_npu {chosen.torch_npu} was made for {' or '.join(chosen.cann)}",
            f"install CANN {chosen.cann[-1]}, or the torch_npu of this CANN: {_sets_for(version)}",
        )
    else:
        yield Check("CANN", "ok", f"CANN {version}, as torch_npu {chosen.torch_npu} wants (table of {table().read})")


def _same(version: str, known: str) -> bool:
    """ "9.0.0.alpha1" and "9.0.0" are one release; "8.3.RC1" and "8.3.RC2" are not."""
    return version.lower() == known.lower() or version.lower().startswith(known.lower() + ".")


def _sets_for(cann: str) -> str:
    found = [entry.torch_npu for entry in table().sets if any(_same(cann, known) for known in entry.cann)]
    return ", ".join(found) or "none is in the table"


def _torch_npu(env: Mapping[str, str]) -> Iterator[Check]:
    problems = list(stack.package_problems())
    for problem in problems:
        yield Check("torch_npu", "failed", problem.reason, problem.remedy)
    version, torch = distribution_version("torch_npu"), torch_build()
    if problems or not version or torch is None:
        return
    chosen, python = table().find(version), sys.version_info[:2]
    if chosen is None:
        known = ", ".join(entry.torch_npu for entry in table().for_torch(torch.version)) or "none of this torch"
        yield Check(
            "torch_npu",
            "warning",
            f"torch {torch.version} + torch_npu {version} are not in the table of {table().read} (known: {known})",
            f"proven: {_proven()}; docs/ascend.md lists all sets",
        )
    elif not chosen.python_fits(python):
        yield Check(
            "torch_npu",
            "warning",
            f"torch_npu {version} has wheels for Python {' to '.join(chosen.python)}, this is {python[0]}.{python[1]}",
            f"use Python {chosen.python[1]}",
        )
    else:
        proven = ", the proven set" if version == table().proven else ""
        yield Check("torch_npu", "ok", f"torch {torch.version} + torch_npu {version}{proven}")


def _proven() -> str:
    chosen = table().find(table().proven)
    return f"pip install {chosen.pip}" if chosen else table().proven


def _undeclared() -> Iterator[Check]:
    absent = [name for name in table().undeclared if importlib.util.find_spec(_MODULES.get(name, name)) is None]
    if absent:
        yield Check(
            "its packages",
            "failed",
            f"torch_npu or CANN's operators import {', '.join(absent)}, which some wheels do not ask for",
            f"pip install {' '.join(absent)}",
        )
    else:
        yield Check("its packages", "ok", ", ".join(table().undeclared))


def _libraries(env: Mapping[str, str]) -> Iterator[Check]:
    folder = package_folder("torch_npu")
    library = folder / "lib" / "libtorch_npu.so" if folder else None
    if library is None or not library.is_file():
        yield Check("libraries", "skipped", "torch_npu is not installed")
        return
    missing = missing_libraries(library, env)
    if missing is None:
        yield Check("libraries", "skipped", "ldd is not there or cannot read libtorch_npu.so")
    elif missing:
        fixes = [fix for pattern, fix in _REMEDIES if any(re.search(pattern, name) for name in missing)]
        yield Check(
            "libraries",
            "failed",
            f"libtorch_npu.so does not find {', '.join(missing)}",
            "; ".join(fixes) or "put their folders on LD_LIBRARY_PATH",
        )
    else:
        yield Check("libraries", "ok", "libtorch_npu.so finds all it needs")


def _mx_driving() -> Iterator[Check]:
    version, torch = distribution_version("mx_driving"), torch_build()
    if not version:
        yield Check("mx_driving", "ok", "not installed; nothing here needs it")
        return
    known = next((entry for entry in table().mx_driving if entry["version"] == version), None)
    if known is None:
        yield Check("mx_driving", "warning", f"mx_driving {version} is not in the table", "remove it if torch fails")
    elif torch is not None and stack.release(torch.version) not in SpecifierSet(known["torch"]):
        yield Check(
            "mx_driving",
            "warning",
            f"mx_driving {version} is compiled for torch {known['torch']}, installed is {torch.version}",
            "pip uninstall mx_driving; the backend is complete without it",
        )
    else:
        yield Check("mx_driving", "ok", f"mx_driving {version}")


def _variables(env: Mapping[str, str]) -> Iterator[Check]:
    different = {name: value for name, value in environment.FIXED.items() if env.get(name, value) != value}
    for name, wanted in different.items():
        yield Check("variables", "warning", f"{name}={env[name]}, usual is {wanted}", f"unset {name}")
    if not different:
        yield Check("variables", "ok", " ".join(f"{name}={value}" for name, value in environment.FIXED.items()))


def _ports(env: Mapping[str, str]) -> Iterator[Check]:
    given = env.get("HCCL_IF_BASE_PORT", "")
    if given.isdigit():
        first = int(given)
        taken = environment.taken_ports(first) if first <= environment.LAST_BASE_PORT else []
        if first > environment.LAST_BASE_PORT or taken:
            what = f"port {taken[0]} is taken" if taken else f"it may be at most {environment.LAST_BASE_PORT}"
            yield Check("HCCL ports", "failed", f"HCCL_IF_BASE_PORT={given}: {what}", "unset HCCL_IF_BASE_PORT")
            return
        yield Check("HCCL ports", "ok", f"{first} to {first + environment.PORTS - 1} are free (HCCL_IF_BASE_PORT)")
        return
    base = environment.free_base_port()
    if base:
        yield Check("HCCL ports", "ok", f"{base} to {base + environment.PORTS - 1} are free")
    else:
        yield Check(
            "HCCL ports",
            "warning",
            f"no {environment.PORTS} free ports in a row from 60000 on",
            "end old jobs (EJ0003 is HCCL's error for this)",
        )
