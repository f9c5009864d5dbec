"""Failures of the vendor's packages: met with the naive code, gone through the plugin."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap

import pytest

from tests.plugins import test_ascend_patches as driving
from vla_backend import activate
from vla_backend_ascend import environment

install = driving.install

#: A release whose patcher has other classes than the sources that a port was written against.
LACKING = driving.DEFAULT_ONLY


def reports() -> dict[str, bool]:
    return {name: report.applied for name, report in driving.reports().items()}


def test_mx_driving_moved_its_interface(install) -> None:
    """A2: the import that a port was written with fails on a later release; the plugin uses what is there."""
    install({"patcher/__init__": driving.RELEASE_26, "tools/patch": "", "tools/patch/__init__": ""})
    with (
        driving.patches._without_spoof(),
        pytest.raises(ImportError, match="cannot import name 'TransformersNPU'") as e,
    ):
        exec("from mx_driving.tools.patch import TransformersNPU")
    known = activate("ascend", check_available=False).translate_error(e.value)
    assert "whichever interface" in known.remedy
    assert "mx_driving" in known.chinese
    sys.modules.pop("mx_driving.patcher", None)
    assert any(reports().values())


def test_mx_driving_lacks_classes(install) -> None:
    """B1: the published wheel lacks the class; absent is reported, and what it has is applied."""
    install({"patcher": LACKING})
    with driving.patches._without_spoof(), pytest.raises(ImportError, match="TransformersNPU"):
        exec("from mx_driving.patcher import TransformersNPU")
    assert list(reports().values()) == [True]
    assert sys.modules["mx_driving.patcher"].events == ["apply"]


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", *env)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | env)


def test_library_folders_of_the_wheels() -> None:
    """A3: torch's libraries are not on the linker's path; what the launcher adds finds them."""
    load = "import ctypes; ctypes.CDLL('libc10.so'); print('loaded')"
    bare = python(load)
    assert "libc10.so: cannot open shared object file" in bare.stderr
    backend = activate("ascend", check_available=False)
    assert "LD_LIBRARY_PATH" in backend.translate_error(OSError(bare.stderr.splitlines()[-1])).remedy
    guarded = python(load, LD_LIBRARY_PATH=backend.env_defaults({}, {})["LD_LIBRARY_PATH"])
    assert guarded.stdout == "loaded\n", guarded.stderr


#: The check at the top of torch_npu 2.7.1, on what torch keeps of a registration; then one, then what a missing library
#: does to the rest. (torch_npu 2.13 lets a second import pass this check.)
HALF_WAY = """
import torch
registered = torch._C._get_privateuse1_backend_name()
if registered != "privateuseone":
    raise RuntimeError(f"Two accelerators cannot be used at the same time in PyTorch: npu and {registered}.")
torch.utils.rename_privateuse1_backend("npu")
import torch_npu.npu
torch._register_device_module("npu", torch_npu.npu)
raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")
"""
NAIVE = """
try:
    import torch_npu
except ImportError:
    pass
import torch_npu
"""
GUARDED = """
from vla_backend import activate
for attempt in range(2):
    try:
        activate("ascend", check_available=False).load_stack()
    except Exception as error:
        print(error)
"""


def test_second_import_of_torch_npu(tmp_path) -> None:
    """B2: a second import says "npu and npu" and hides the cause; the backend imports once and repeats the cause."""
    package = tmp_path / "torch_npu"
    package.mkdir()
    (package / "__init__.py").write_text(HALF_WAY)
    (package / "npu.py").write_text("is_available = lambda: True\nis_initialized = lambda: False\n")
    env = {"PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONIOENCODING": "utf-8"}
    naive = python(NAIVE, **env)
    assert "Two accelerators cannot be used at the same time in PyTorch: npu and npu" in naive.stderr
    known = activate("ascend", check_available=False).translate_error(RuntimeError(naive.stderr.splitlines()[-1]))
    assert "first import error" in known.remedy
    guarded = python(GUARDED, **env)
    assert guarded.stdout.count("libhccl.so") == 2, guarded.stdout + guarded.stderr
    assert "npu and npu" not in guarded.stdout
    assert guarded.stdout.count("set_env.sh") >= 2
    assert "中文" in guarded.stdout


def test_settings_that_bring_it_about_are_refused() -> None:
    backend = activate("ascend", check_available=False)
    (issue,) = backend.check_config({}, {"TORCH_TRANSFER_TO_NPU": "1"})
    assert issue.level == "error"
    assert "NCCL" in issue.chinese


def test_allocator_settings() -> None:
    """torch_npu refuses the pair when the first tensor reaches the NPU; here before anything starts."""
    backend = activate("ascend", check_available=False)
    pair = "expandable_segments:True,max_split_size_mb:128"
    (issue,) = backend.check_config({}, {"PYTORCH_NPU_ALLOC_CONF": pair})
    assert (issue.level, issue.key) == ("error", "PYTORCH_NPU_ALLOC_CONF")
    assert "max_split_size_mb" in issue.remedy
    assert issue.chinese
    for fine in ("expandable_segments:True", "expandable_segments:False,max_split_size_mb:128", "max_split_size_mb:9"):
        assert backend.check_config({}, {"PYTORCH_NPU_ALLOC_CONF": fine}) == []


def test_base_port(monkeypatch) -> None:
    backend = activate("ascend", check_available=False)
    monkeypatch.setattr(environment, "_can_bind", lambda port: port != 61005)
    for port, word in (("61000", "61005"), ("65530", "65520"), ("auto", "1024")):
        (issue,) = backend.check_config({}, {"HCCL_IF_BASE_PORT": port})
        assert issue.level == "error"
        assert word in issue.message
    assert backend.check_config({}, {"HCCL_IF_BASE_PORT": "62000"}) == []


def test_precision_in_both_files() -> None:
    """A10: accelerate drops bf16 in silence when DeepSpeed's file says otherwise; here it is an error naming both."""
    importlib.import_module("deepspeed")
    code = textwrap.dedent(
        """
        from accelerate import Accelerator, DeepSpeedPlugin, PartialState
        PartialState(cpu=True)
        settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": False}, "zero_optimization": {"stage": 2}}
        accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings))
        print("precision", accelerator.mixed_precision)
        """
    )
    env = {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    done = python(code, **env, MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    assert "precision no" in done.stdout, done.stdout + done.stderr[-2000:]

    from vla_train.config import ConfigError
    from vla_train.config.checks import check_values
    from vla_train.config.errors import Problem, raise_if
    from vla_train.config.schema import Config

    config = Config()
    config.parallel.strategy, config.parallel.mixed_precision = "zero2", "bf16"
    config.parallel.deepspeed = {"bf16": {"enabled": False}}
    findings = [finding for finding in check_values(config, skip=("run",)) if "bf16" in finding[1]]
    with pytest.raises(ConfigError, match=r"parallel\.mixed_precision") as error:
        raise_if([Problem(*finding) for finding in findings])
    assert "中文: 精度" in str(error.value)
