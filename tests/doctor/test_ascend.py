"""The Ascend plugin's checks and its set-up script; both come from one table of versions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vla_backend_ascend import doctor, doctor_smi, setup, versions
from vla_backend_ascend.cann_sim import npu_smi

TABLE = versions.table()


def test_the_table_is_dated_and_whole() -> None:
    assert TABLE.read == "2026-11-30"
    assert TABLE.find(TABLE.proven).torch == "2.7.1"
    assert TABLE.find(TABLE.recommended).cann == ("9.1.0",)
    for entry in TABLE.sets:
        assert entry.torch_npu.startswith(entry.torch)
        assert entry.python_fits((3, 10))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", [entry.torch_npu for entry in TABLE.sets])
def test_every_set_gives_a_script(name: str, machine: str) -> None:
    text, entry = setup.script(name, machine), TABLE.find(name)
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    assert f'"torch_npu=={name}"' in text
    assert f'"torch=={entry.torch}{"+cpu" if machine == "x86_64" else ""}"' in text
    assert (setup.cann(entry) or "not published") in text
    # Wheels only, where wheels exist.
    assert "--only-binary torch,torch_npu" in text
    assert "git clone" not in text
    for step in ("set_env.sh", "vla doctor --backend ascend", "vla train --backend ascend --zero 3"):
        assert step in text


def test_the_proven_set_is_the_default() -> None:
    text = setup.script("", "aarch64")
    for part in ("python3.10", "CANN 9.0.0", "torch==2.7.1", "torch_npu==2.7.1.post2", "Driver 24.1.rc1"):
        assert part in text


def test_unknown_sets_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(setup.UnknownSet) as refused:
        setup.script("9.9.9", "x86_64")
    assert "2.7.1.post2" in refused.value.why
    with pytest.raises(setup.UnknownSet):
        setup.script("", "riscv64")


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretend versions: installed(torch_npu=..., torch=..., cann=..., driver=...)."""
    from vla_backend.installed import TorchBuild

    def pretend(
        torch_npu: str, torch: str, cann: str = "9.0.0", driver: str = "25.0.rc1", mx: str = "", cuda: str = ""
    ) -> None:
        build = TorchBuild(torch, cuda, "", tmp_path)
        for module in (doctor, doctor.stack):
            monkeypatch.setattr(module, "torch_build", lambda: build)
            monkeypatch.setattr(
                module, "distribution_version", lambda name: {"torch_npu": torch_npu, "mx_driving": mx}.get(name, "")
            )
        monkeypatch.setattr(doctor.stack, "package_folder", lambda name: tmp_path)
        monkeypatch.setattr(doctor.hardware, "driver_version", lambda: driver)
        monkeypatch.setattr(doctor.hardware, "cann_version", lambda home: cann)
        monkeypatch.setattr(doctor.stack, "cann_problems", lambda env: iter(()))

    return pretend


def only(checks, name: str):
    return next(check for check in checks if check.name == name)


HOME = {"ASCEND_HOME_PATH": "/usr/local/Ascend"}


def test_the_proven_set_passes(installed) -> None:
    installed("2.7.1.post2", "2.7.1+cpu")
    check = only(doctor._torch_npu({}), "torch_npu")
    assert check.outcome == "ok"
    assert "proven" in check.detail
    assert only(doctor._cann(HOME), "CANN").outcome == "ok"
    assert only(doctor._driver(), "driver").outcome == "ok"


def test_an_old_driver(installed) -> None:
    installed("2.7.1.post2", "2.7.1", driver="23.0.7")
    check = only(doctor._driver(), "driver")
    assert check.outcome == "failed"
    assert "24.1.rc1" in check.remedy


def test_another_cann_names_what_fits(installed) -> None:
    installed("2.12.0", "2.12.0", cann="9.0.0")
    check = only(doctor._cann(HOME), "CANN")
    assert check.outcome == "warning"
    assert "CANN 9.1.0" in check.remedy
    assert "2.7.1.post2" in check.remedy


def test_versions_that_do_not_belong_together(installed) -> None:
    installed("2.7.1.post2", "2.7.0")
    assert only(doctor._torch_npu({}), "torch_npu").outcome == "failed"


def test_what_the_table_does_not_know_is_not_guessed(installed) -> None:
    installed("2.7.1.post11", "2.7.1")
    check = only(doctor._torch_npu({}), "torch_npu")
    assert check.outcome == "warning"
    assert TABLE.read in check.detail
    installed("2.13.0", "2.13.0", cann="9.2.0")
    assert "not published" in only(doctor._cann(HOME), "CANN").detail


def test_mx_driving_of_another_torch(installed) -> None:
    installed("2.7.1.post2", "2.7.1", mx="26.1.0.post1")
    check = only(doctor._mx_driving(), "mx_driving")
    assert check.outcome == "warning"
    assert ">=2.1,<2.6" in check.detail
    installed("2.7.1.post2", "2.7.1", mx="26.2.0.post2")
    assert only(doctor._mx_driving(), "mx_driving").outcome == "ok"


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [(["libascend_hal.so"], "driver"), (["libascendcl.so", "libhccl.so"], "set_env.sh"), (["libfoo.so"], "LD_LIBRARY")],
)
def test_missing_libraries_name_their_owner(monkeypatch, tmp_path, missing, remedy: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_npu.so").touch()
    monkeypatch.setattr(doctor, "package_folder", lambda name: tmp_path)
    monkeypatch.setattr(doctor, "missing_libraries", lambda library, env: missing)
    (check,) = doctor._libraries({})
    assert check.outcome == "failed"
    assert missing[0] in check.detail
    assert remedy in check.remedy


def test_variables_and_ports(monkeypatch) -> None:
    (check,) = doctor._variables({"TASK_QUEUE_ENABLE": "0"})
    assert check.outcome == "warning"
    assert "TASK_QUEUE_ENABLE=0" in check.detail
    assert only(doctor._ports({"HCCL_IF_BASE_PORT": "65530"}), "HCCL ports").outcome == "failed"
    monkeypatch.setattr(doctor.environment, "taken_ports", lambda base: [61003])
    assert "61003" in only(doctor._ports({"HCCL_IF_BASE_PORT": "61000"}), "HCCL ports").detail


def test_npu_smi_is_read(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CANN_SIM_DEVICES", "2")
    monkeypatch.setenv("CANN_SIM_MEMORY", str(64 << 30))
    monkeypatch.setenv("CANN_SIM_SESSION", str(tmp_path))
    chips = list(doctor_smi.read_smi(npu_smi.info()))
    assert [(chip.number, chip.name, chip.health) for chip in chips] == [(0, "910B2", "OK"), (1, "910B2", "OK")]
    assert [(chip.used, chip.total) for chip in chips] == [(0, 65536)] * 2


REAL = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc3                 Version: 24.1.rc3                                              |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.5        42                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3402 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | Alarm         | 93.5        42                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          60000/ 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 1       0                 | 4242          | python                   | 57000                   |
+===========================+===============+====================================================+
"""


def test_an_ill_and_a_busy_npu(monkeypatch) -> None:
    done = subprocess.CompletedProcess([], 0, stdout=REAL, stderr="")
    monkeypatch.setattr(doctor_smi.shutil, "which", lambda name: "/usr/local/bin/npu-smi")
    monkeypatch.setattr(doctor_smi.subprocess, "run", lambda *_, **__: done)
    found = list(doctor_smi.smi_checks())
    assert [check.outcome for check in found] == ["failed", "warning"]
    assert "NPU 1 (910B3) is in health Alarm" in found[0].detail
    assert "60000 of 65536" in found[1].detail


def test_the_documented_table_is_that_of_the_data_file() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ascend.md").read_text(encoding="utf-8")
    assert TABLE.read in page
    rows = [line for line in page.splitlines() if line.startswith("| 2.")]
    assert len(rows) == len(TABLE.sets)
    for entry, row in zip(TABLE.sets, rows, strict=True):
        cann = " or ".join(entry.cann) or "not published"
        assert row.startswith(f"| {entry.torch_npu} | {entry.torch} | {cann} | {entry.python[0]}-{entry.python[1]} |")
