"""The Ascend probe on file trees: what is there, what is missing, what the runtime would do in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from vla_backend import activate
from vla_backend.errors import BackendUnavailable
from vla_backend.installed import TorchBuild
from vla_backend_ascend import hardware, identity, stack


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Host:
    """A machine with 8 NPUs, driver, CANN, torch and torch_npu that fit together; tests break one thing."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch
        monkeypatch.setattr(hardware, "ROOT", root)
        monkeypatch.setattr(identity.sys, "platform", "linux")
        for name in ("davinci_manager", "devmm_svm", "hisi_hdc", *(f"davinci{number}" for number in range(8))):
            write(root / "dev" / name)
        write(root / "usr/local/Ascend/driver/version.info", "Version=25.0.rc1\nascendhal_version=7.35.23\n")
        write(root / "usr/local/Ascend/driver/lib64/driver/libascend_hal.so")
        home = root / "usr/local/Ascend/ascend-toolkit/latest"
        write(home / "x86_64-linux/ascend_toolkit_install.info", "package_name=Ascend-cann\nversion=9.0.0\n")
        write(home.parent / "set_env.sh")
        (home / "opp").mkdir()
        for library in ("libascendcl.so", "libhccl.so"):
            write(home / "lib64" / library)
        self.home = home
        self.env = {
            "ASCEND_HOME_PATH": str(home),
            "ASCEND_OPP_PATH": str(home / "opp"),
            "LD_LIBRARY_PATH": f"/somewhere:{home / 'lib64'}",
        }
        self.packages()

    def packages(self, torch: str = "2.7.1+cpu", npu: str = "2.7.1.post2", cuda: str = "") -> None:
        build = TorchBuild(torch, cuda, "", Path("torch")) if torch else None
        for module in (stack, identity):
            self.monkeypatch.setattr(module, "torch_build", lambda: build)
            self.monkeypatch.setattr(module, "distribution_version", lambda name: npu)
        self.monkeypatch.setattr(stack, "package_folder", lambda name: Path(name) if npu else None)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def probe(self, **env: str):
        return activate("ascend", check_available=False).probe({**self.env, **env})


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


def test_a_complete_host(host) -> None:
    probe = host.probe()
    assert probe.ok
    assert probe.device_count == 8
    assert not probe.shared
    for part in ("8 x /dev/davinci", "driver 25.0.rc1", "CANN 9.0.0", "torch 2.7.1+cpu", "torch_npu 2.7.1.post2"):
        assert part in probe.reason


def test_here_it_is_refused_with_reason_and_remedy() -> None:
    if list(Path("/dev").glob("davinci*")):
        pytest.skip("this machine has NPUs")
    with pytest.raises(BackendUnavailable) as refused:
        activate("ascend")
    assert "/dev/davinci" in refused.value.why
    assert "driver" in refused.value.fix


def test_other_systems(host, monkeypatch) -> None:
    monkeypatch.setattr(identity.sys, "platform", "darwin")
    assert "Linux only" in host.probe().reason


def test_container_nodes_start_anywhere(host) -> None:
    for number in (0, 1, 2, 3):
        host.remove(f"dev/davinci{number}")
    assert hardware.devices() == [4, 5, 6, 7]
    assert host.probe().device_count == 4
    assert host.probe(ASCEND_RT_VISIBLE_DEVICES="0,1").device_count == 2
    probe = host.probe(ASCEND_RT_VISIBLE_DEVICES="4,5")
    assert not probe.ok
    assert "count from 0" in probe.reason


@pytest.mark.parametrize(
    ("mask", "count", "problem", "remedy"),
    [
        ("0", 1, "", ""),
        ("0,1,2,3,4,5,6,7", 8, "", ""),
        ("2,5", 2, "", ""),
        ("", 0, "hides every NPU", "unset"),
        ("1,0", 0, "unless the indices ascend", "=0,1"),
        ("3,3", 0, "unless the indices ascend", "=3"),
        ("0,1,8", 0, "no device 8", "=0,1"),
        ("9", 0, "no device 9", "unset"),
        ("0, 1", 0, "stops reading at ' '", "=0,1"),
        ("0-3", 0, "stops reading at '-'", "unset"),
        ("0,1,", 0, "empty entry", "=0,1"),
        ("-1", 0, "stops reading at '-'", "unset"),
    ],
)
def test_masks_that_the_runtime_shrinks_in_silence_are_refused(host, mask, count, problem, remedy) -> None:
    probe = host.probe(ASCEND_RT_VISIBLE_DEVICES=mask)
    assert (probe.ok, probe.device_count) == (not problem, count)
    if problem:
        assert problem in probe.reason
        assert remedy in probe.remedy
        assert "ASCEND_RT_VISIBLE_DEVICES" in probe.remedy


def test_the_remedy_for_a_mask_works(host) -> None:
    remedy = host.probe(ASCEND_RT_VISIBLE_DEVICES="5,1,1,99").remedy
    assert remedy.startswith("ASCEND_RT_VISIBLE_DEVICES=")
    assert host.probe(ASCEND_RT_VISIBLE_DEVICES=remedy.partition("=")[2]).device_count == 2


@pytest.mark.parametrize(
    ("missing", "reason", "remedy"),
    [
        ("dev/davinci_manager", "/dev/davinci_manager is missing", "--device /dev/davinci_manager"),
        ("usr/local/Ascend/driver/lib64/driver/libascend_hal.so", "libascend_hal.so", "mount the host's"),
        ("usr/local/Ascend/ascend-toolkit/latest/lib64/libhccl.so", "libhccl.so of CANN is not on", "set_env.sh"),
    ],
)
def test_missing_files(host, missing, reason, remedy) -> None:
    host.remove(missing)
    probe = host.probe()
    assert not probe.ok
    assert reason in probe.reason
    assert remedy in probe.remedy


def test_libraries_are_found_through_the_linkers_configuration(host) -> None:
    host.remove("usr/local/Ascend/driver/lib64/driver/libascend_hal.so")
    write(host.root / "opt/driver/libascend_hal.so")
    write(host.root / "etc/ld.so.conf.d/ascend.conf", "# driver\n/opt/driver\n")
    assert host.probe().ok


def test_cann_not_sourced(host) -> None:
    del host.env["ASCEND_HOME_PATH"]
    probe = host.probe()
    assert "its environment is not set" in probe.reason
    assert f"source {host.home.parent / 'set_env.sh'}" in probe.remedy


def test_cann_absent(host) -> None:
    host.home.rename(host.root / "elsewhere")
    assert "ASCEND_HOME_PATH" in host.probe().reason
    del host.env["ASCEND_HOME_PATH"]
    assert "CANN is not installed" in host.probe().reason


def test_cann_without_operators(host) -> None:
    del host.env["ASCEND_OPP_PATH"]
    assert "ASCEND_OPP_PATH" in host.probe().reason
    assert "ASCEND_OPP_PATH" in host.probe(ASCEND_OPP_PATH="").reason


def test_everything_wrong_is_told_at_once(host) -> None:
    host.remove("dev/hisi_hdc")
    host.packages(npu="")
    probe = host.probe(ASCEND_RT_VISIBLE_DEVICES="1,0")
    for part in ("/dev/hisi_hdc", "torch_npu is not installed", "ascend"):
        assert part in probe.reason
    assert probe.remedy.count(";") >= 2


@pytest.mark.parametrize(
    ("torch", "npu", "ok"),
    [
        ("2.7.1+cpu", "2.7.1.post2", True),
        ("2.13.0", "2.13.0", True),
        ("2.7.0+cpu", "2.7.1", False),
        ("2.13.0+cpu", "2.12.0.post2", False),
        ("2.10.0", "2.1.0", False),
    ],
)
def test_versions_agree_to_the_patch_level(host, torch, npu, ok) -> None:
    host.packages(torch, npu)
    probe = host.probe()
    assert probe.ok is ok
    if not ok:
        assert torch in probe.reason
        assert npu in probe.reason
        assert f'torch_npu=={torch.partition("+")[0]}.*"' in probe.remedy


def test_torch_absent(host) -> None:
    host.packages(torch="")
    assert "torch is not installed" in host.probe().reason


def test_cuda_build_matters_only_beside_an_nvidia_gpu(host) -> None:
    host.packages("2.7.1+cu126", "2.7.1.post2", cuda="12.6")
    assert host.probe().ok
    write(host.root / "dev/nvidia0")
    assert "refuses to share torch" in host.probe().reason
