"""mx_driving through each of its published interfaces, played by packages with exactly those names."""

from __future__ import annotations

import importlib.util
import sys
import textwrap

import pytest
import torch

from vla_backend import activate
from vla_backend.installed import distribution_version
from vla_backend_ascend import patch_table, patches

#: Every release imports torch_npu's stand-in for CUDA at its top.
TOP = "import torch_npu\nfrom torch_npu.contrib import transfer_to_npu\n"

RELEASE_26 = """
class Atomic:
    def __init__(self, name, works=True):
        self.name, self.works, self.is_applied = name, works, False

class Patcher:
    def __init__(self):
        self.items = []
    def add(self, *items):
        self.items += items
        return self
    def apply(self):
        for item in self.items:
            item.is_applied = item.works
        return self

class TransformersNPU:
    @classmethod
    def patches(cls, options=None):
        return [
            Atomic("transformers.models.qwen3.modeling_qwen3.Qwen3RMSNorm.forward"),
            Atomic("transformers.models.qwen3.modeling_qwen3.apply_rotary_pos_emb"),
            Atomic("transformers.models.qwen3.modeling_qwen3.never_read"),
            Atomic("transformers.modeling_flash_attention_utils.flash_attn_func", works=False),
            Atomic("transformers.image_processing_utils_fast.BaseImageProcessorFast.preprocess"),
        ]

class DiffusersNPU:
    @classmethod
    def patches(cls, options=None):
        return [Atomic("diffusers.models.attention_processor.AttnProcessor2_0.__call__", works=False)]

class Never:
    def apply(self):
        raise AssertionError("the general patches are left out where the particular ones exist")

default_patcher = Never()
"""
BEFORE_1_0 = """
added = []
class Patcher:
    def add(self, *items):
        added.extend(items)
        return self
    def apply(self):
        added.append("applied")
        return self
class TransformersNPU:
    name = "transformers_npu"
"""
BUILDER = """
events = []
class _Patcher:
    def __enter__(self):
        events.append("enter")
        return self
    def __exit__(self, *exc):
        events.append("exit")
class _Builder:
    def build(self):
        return _Patcher()
default_patcher_builder = _Builder()
"""
DEFAULT_ONLY = """
events = []
class _Patcher:
    def apply(self):
        events.append("apply")
        return self
default_patcher = _Patcher()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts mx_driving, and a torch_npu with the stand-in for CUDA, on the path; `files` are its modules."""

    def install(files: dict[str, str], version: str = "26.2.0.post2") -> None:
        site = tmp_path / "site"
        npu = {"__init__": "", "contrib/__init__": "", "contrib/transfer_to_npu": "raise AssertionError('spoofed')"}
        for package, modules in (("torch_npu", npu), ("mx_driving", {"__init__": TOP, **files})):
            for name, text in modules.items():
                path = site / package / f"{name}.py"
                path.parent.mkdir(parents=True, exist_ok=True)
                for folder in path.parents:
                    if folder == site:
                        break
                    (folder / "__init__.py").touch()
                path.write_text(textwrap.dedent(text))
        info = site / f"mx_driving-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mx_driving\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(site))

    yield install
    for name in [name for name in sys.modules if name.split(".")[0] in ("mx_driving", "torch_npu")]:
        del sys.modules[name]
    patches._entered.clear()


def reports():
    backend = activate("ascend", check_available=False)
    # The phase alone: this process has no torch_npu to load.
    from vla_backend import Phase

    backend.phase = Phase.PRE_INIT
    before = torch.cuda.is_available
    answer = {report.name: report for report in backend.apply_patches()}
    assert torch.cuda.is_available is before
    assert patches.SPOOF not in sys.modules
    return answer


def test_absence_is_stated() -> None:
    (report,) = reports().values()
    assert not report.applied
    assert "not installed" in report.detail


def test_release_26(install) -> None:
    install({"patcher/__init__": RELEASE_26})
    found = reports()
    outcome = {name.removeprefix("mx_driving 26.2.0.post2 "): report.applied for name, report in found.items()}
    assert outcome == {
        "transformers.image_processing_utils_fast.BaseImageProcessorFast.preprocess": False,
        "transformers.models.qwen3.modeling_qwen3.Qwen3RMSNorm.forward": False,
        "transformers.models.qwen3.modeling_qwen3.apply_rotary_pos_emb": True,
        "transformers.models.qwen3.modeling_qwen3.never_read": False,
        "transformers.modeling_flash_attention_utils.flash_attn_func": False,
        "diffusers.models.attention_processor.AttnProcessor2_0.__call__": False,
        "default_patcher": False,
    }
    assert all(report.detail for report in found.values())
    assert any("data workers" in report.detail for report in found.values())


@pytest.mark.parametrize("module", ["tools/patch", "tools/patch/__init__", "tools/patch/patcher", "patcher"])
def test_before_1_0(install, module) -> None:
    install({module: BEFORE_1_0}, version="0.9")
    (report,) = reports().values()
    assert report.applied
    assert report.name == "mx_driving 0.9 TransformersNPU"
    added = sys.modules["mx_driving." + module.removesuffix("/__init__").replace("/", ".")].added
    assert [getattr(item, "name", item) for item in added] == ["transformers_npu", "applied"]


@pytest.mark.parametrize("module", ["tools/patch/patcher", "patcher"])
def test_builder(install, module) -> None:
    install({module: BUILDER}, version="1.0.20260421")
    (report,) = reports().values()
    assert report.applied
    assert "default_patcher_builder" in report.name
    assert sys.modules["mx_driving." + module.replace("/", ".")].events == ["enter"]


def test_default_patcher(install) -> None:
    install({"patcher": DEFAULT_ONLY})
    (report,) = reports().values()
    assert report.applied
    assert sys.modules["mx_driving.patcher"].events == ["apply"]


def test_unknown_interface(install) -> None:
    install({"patcher": "class SuperPatcher: pass\n"})
    (report,) = reports().values()
    assert not report.applied
    assert "unknown interface" in report.detail
    assert "SuperPatcher" in report.detail


def test_no_patcher_at_all(install) -> None:
    install({})
    (report,) = reports().values()
    assert not report.applied
    assert "mx_driving.tools.patch" in report.detail


@pytest.mark.parametrize(
    "failure", ["raise ImportError('_C.so: undefined symbol: _ZN3c10')", "import a_package_that_is_not_there"]
)
def test_a_failing_import_is_reported_and_does_not_end_the_job(install, failure) -> None:
    install({"patcher": failure})
    (report,) = reports().values()
    assert not report.applied
    assert "cannot be imported" in report.detail
    assert ("undefined symbol" in report.detail) or ("a_package_that_is_not_there" in report.detail)


def test_an_active_spoof_is_reported(install, monkeypatch) -> None:
    install({"patcher": DEFAULT_ONLY})
    monkeypatch.setitem(sys.modules, patches.SPOOF, type(sys)(patches.SPOOF))
    from vla_backend_ascend.launch import apply_patches

    spoof, applied = apply_patches()
    assert spoof.name == patches.SPOOF
    assert "torch.cuda" in spoof.detail
    assert applied.applied


LIBRARY = """
def scale(x, factor=2):
    \"\"\"Described.\"\"\"
    return x * factor  # as it was read

class Layer:
    def forward(self, x):
        return x
"""
PATCHER = """
import lib_a.layers
class Atomic:
    name, is_applied = "lib_a.layers.scale", False
class Patcher:
    def __init__(self):
        self.items = []
    def add(self, *items):
        self.items += items
        return self
    def apply(self):
        for item in self.items:
            lib_a.layers.scale = replacement
            item.is_applied = True
        return self
def replacement(x, factor=2):
    return factor * x
class TransformersNPU:
    @classmethod
    def patches(cls, options=None):
        return [Atomic()]
"""
SOLE = """
import lib_a.layers
class _P:
    def apply(self):
        lib_a.layers.scale = print
default_patcher = _P()
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Install a library `lib_a` 1.5 with this code, and a table that has read it as it was."""

    def install(code: str = LIBRARY, versions: str = ">=1,<2", fingerprints: tuple[str, ...] | None = None) -> None:
        site = tmp_path / "libraries"
        (site / "lib_a").mkdir(parents=True)
        (site / "lib_a" / "__init__.py").touch()
        (site / "lib_a" / "layers.py").write_text(code)
        info = site / "lib_a-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lib_a\nVersion: 1.5\n")
        monkeypatch.syspath_prepend(str(site))
        (tmp_path / "read.py").write_text(LIBRARY)
        spec = importlib.util.spec_from_file_location("as_it_was_read", tmp_path / "read.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        read = (patch_table.fingerprint(module.scale),) if fingerprints is None else fingerprints
        entry = patch_table.Patch("lib_a.layers.scale", "lib_a", versions, read)
        monkeypatch.setattr(patch_table, "PATCHES", (entry,))

    yield install
    for name in [name for name in sys.modules if name.split(".")[0] == "lib_a"]:
        del sys.modules[name]


def only_report():
    (report,) = reports().values()
    return report


def test_a_patch_that_fits_is_applied_and_its_effect_listed(install, library) -> None:
    library()
    install({"patcher": PATCHER})
    report = only_report()
    assert report.applied
    assert report.detail == "lib_a.layers.scale is now mx_driving.patcher.replacement"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"code": LIBRARY.replace("x * factor", "x * factor + 1")}, "has other code at lib_a.layers.scale"),
        ({"versions": "<1.5"}, "read for lib_a <1.5, installed is 1.5"),
        ({"code": "other = 1"}, "lib_a 1.5 has no lib_a.layers.scale"),
    ],
)
def test_a_patch_that_does_not_fit_is_reported_and_changes_nothing(install, library, change, says) -> None:
    library(**change)
    install({"patcher": PATCHER})
    import lib_a.layers

    before = vars(lib_a.layers).copy()
    report = only_report()
    assert not report.applied
    assert says in report.detail
    assert {name: value for name, value in vars(lib_a.layers).items() if not name.startswith("__")} == {
        name: value for name, value in before.items() if not name.startswith("__")
    }


def test_the_fingerprint_is_of_code_not_of_layout(install, library) -> None:
    library(code=LIBRARY.replace("Described.", "Described otherwise.").replace("  # as it was read", "\n"))
    install({"patcher": PATCHER})
    assert only_report().applied


def test_what_a_release_patches_as_a_whole_is_listed(install, library) -> None:
    library()
    install({"patcher": SOLE})
    report = only_report()
    assert report.applied
    assert report.detail.endswith("unread as a whole: replaced lib_a.layers.scale")


@pytest.mark.parametrize("patch", [p for p in patch_table.PATCHES if p.fingerprints], ids=lambda p: p.target)
def test_the_table_knows_the_installed_libraries(patch) -> None:
    """Fails when a library changes code that a patch replaces: read the patch again and add the version."""
    from packaging.specifiers import SpecifierSet

    version = distribution_version(patch.distribution)
    found = patch_table.fingerprint(patch_table.resolve(patch.target))
    assert (found in patch.fingerprints) == SpecifierSet(patch.versions).contains(version, prereleases=True)
