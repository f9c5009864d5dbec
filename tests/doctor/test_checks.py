"""The doctor's checks on readings that are given to them."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from tests.train import toy
from vla_backend import activate
from vla_backend.health import missing_libraries
from vla_train.doctor import machine, packages, readings, report
from vla_train.doctor.readings import Readings

GOOD = Readings(
    shared_memory=(64 << 30, 64 << 30),
    disk_free=1 << 40,
    compiler="/usr/bin/c++",
    compiler_error="",
    python_header=True,
    ninja=True,
    stale_locks=(),
    localhost=True,
    taken_port="",
)


def but(**changes) -> Readings:
    return dataclasses.replace(GOOD, **changes)


@pytest.fixture
def backend():
    return activate("cpu", check_available=False)


@pytest.fixture
def config(tmp_path):
    made = toy.config(tmp_path)
    made.data.num_workers, made.data.batch_size = 4, 16
    return made


def test_a_good_machine_has_nothing_to_remedy(backend, config) -> None:
    found = [
        *machine.compiler(GOOD, config),
        machine.disk(GOOD, config, 10**9),
        machine.shared_memory(GOOD, config, backend),
        machine.ports(GOOD),
    ]
    assert [check.outcome for check in found] == ["ok"] * 4
    assert report.passed(found)


def test_a_missing_compiler_fails_only_what_needs_one(config) -> None:
    (check,) = machine.compiler(but(compiler=""), config)
    assert check.outcome == "warning"
    assert "g++" in check.remedy
    config.train.compile = True
    (check,) = machine.compiler(but(compiler=""), config)
    assert check.outcome == "failed"
    assert "train.compile" in check.detail


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"compiler_error": "fatal error: cmath: No such file"}, "cmath"),
        ({"python_header": False}, "Python.h"),
        ({"ninja": False}, "ninja"),
    ],
)
def test_a_compiler_that_cannot_build(changes, text: str, config) -> None:
    config.parallel.deepspeed = {"zero_force_ds_cpu_optimizer": True}
    (check,) = machine.compiler(but(**changes), config)
    assert check.outcome == "failed"
    assert text in check.detail


def test_a_lock_left_by_an_interrupted_build(config) -> None:
    found = list(machine.compiler(but(stale_locks=("/cache/shm/lock",)), config))
    assert [check.outcome for check in found] == ["ok", "warning"]
    assert found[1].remedy == "rm /cache/shm/lock"


def test_shared_memory_of_a_default_container(backend, config) -> None:
    docker = but(shared_memory=(64 << 20, 64 << 20))
    assert machine.shared_memory(docker, None, backend).outcome == "failed"
    check = machine.shared_memory(docker, config, backend)
    assert check.outcome == "failed"
    assert "--shm-size" in check.remedy
    config.data.num_workers = 0
    assert machine.shared_memory(docker, config, backend).outcome == "ok"


def test_disk_for_the_checkpoints_that_are_kept(config) -> None:
    wanted = (config.train.keep_checkpoints + 1) * 12 * 10**9
    assert machine.disk(but(disk_free=wanted), config, 10**9).outcome == "ok"
    check = machine.disk(but(disk_free=wanted - 1), config, 10**9)
    assert check.outcome == "failed"
    assert "train.keep_checkpoints" in check.remedy


def test_ports() -> None:
    assert machine.ports(but(localhost=False)).outcome == "failed"
    check = machine.ports(but(taken_port="29500"))
    assert (check.outcome, check.remedy) == ("warning", "unset MASTER_PORT")


def test_more_processes_than_devices(monkeypatch, backend) -> None:
    from vla_backend import Probe

    monkeypatch.setattr(backend, "probe", lambda env: Probe(ok=True, reason="4 chips", device_count=4))
    assert machine.devices(backend, {}, 4).outcome == "ok"
    check = machine.devices(backend, {}, 8)
    assert check.outcome == "failed"
    assert "8 processes for 4" in check.detail
    assert "--processes 4" in check.remedy


def test_versions_out_of_range_and_absent() -> None:
    from vla_backend.installed import distribution_version

    wrong = {"transformers": "4.40.0", "deepspeed": "", "pyarrow": "3.0"}
    found = {
        check.name: check
        for check in packages.packages(zero=False, version_of=lambda name: wrong.get(name, distribution_version(name)))
    }
    assert found["transformers"].outcome == "failed"
    assert "4.40.0" in found["transformers"].detail
    assert found["deepspeed"].outcome == "warning"
    assert found["packages"].outcome == "failed"
    assert "pyarrow" in found["packages"].detail
    assert found["torch"].outcome == "ok"
    served = packages.packages(False, lambda name: "" if name == "pyzmq" else distribution_version(name))
    assert [check.outcome for check in served if "pyzmq" in check.detail] == ["warning"]
    strict = {check.name: check for check in packages.packages(zero=True, version_of=lambda name: wrong.get(name, ""))}
    assert strict["deepspeed"].outcome == "failed"


def test_a_library_that_the_linker_does_not_find(tmp_path: Path) -> None:
    found = readings.read({"PATH": "/usr/bin:/bin"}, tmp_path)
    if not found.compiler or found.compiler_error:
        pytest.skip("needs a compiler")
    (tmp_path / "inner.c").write_text("int inner(void) { return 1; }\n")
    (tmp_path / "outer.c").write_text("int inner(void); int outer(void) { return inner(); }\n")
    compiler = ["gcc", "-shared", "-fPIC"]
    subprocess.run([*compiler, "-o", "libinner_of_test.so", "inner.c"], cwd=tmp_path, check=True)
    subprocess.run([*compiler, "-o", "libouter.so", "outer.c", "-L.", "-linner_of_test"], cwd=tmp_path, check=True)
    library = tmp_path / "libouter.so"
    assert missing_libraries(library, {"PATH": "/usr/bin:/bin"}) == ["libinner_of_test.so"]
    assert missing_libraries(library, {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(tmp_path)}) == []
    assert missing_libraries(tmp_path / "absent.so", {"PATH": "/usr/bin:/bin"}) is None


def test_readings_of_this_machine(tmp_path: Path) -> None:
    import socket

    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        found = readings.read({"PATH": "", "MASTER_PORT": port}, tmp_path / "not" / "yet")
    assert (found.compiler, found.taken_port) == ("", port)
    assert found.disk_free > 0
    assert found.localhost
