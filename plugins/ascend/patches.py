"""mx_driving's patches of other libraries, through whichever of its interfaces is installed; each is reported."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Final

from vla_backend import PatchReport
from vla_backend.installed import distribution_version, package_folder

SPOOF: Final = "torch_npu.contrib.transfer_to_npu"
#: Where the patcher has lived, newest first.
MODULES: Final = ("mx_driving.patcher", "mx_driving.tools.patch.patcher", "mx_driving.tools.patch")
#: Groups of patches for the libraries used here, by class name; releases differ in which they have.
GROUPS: Final = ("TransformersNPU", "DiffusersNPU")
#: Patched target (its beginning) -> why it is left out.
LEFT_OUT: Final = {
    "transformers.image_processing": "it moves image preprocessing to the NPU, also in data workers",
    "transformers.models.qwen2_vl.image_processing": "it moves image preprocessing to the NPU, also in data workers",
}

_entered: list[Any] = []


def apply() -> tuple[PatchReport, ...]:
    """Apply what is installed; absent or unknown is a report, not an error, because nothing here depends on it."""
    reports = list(_spoof())
    if package_folder("mx_driving") is None:
        absent = "not installed; the backend is complete without it (its releases cover torch 2.6 to 2.8)"
        return (*reports, PatchReport("mx_driving", applied=False, detail=absent))
    version = distribution_version("mx_driving") or "of unknown version"
    name = f"mx_driving {version}"
    try:
        with _without_spoof():
            patcher = _module()
    except Exception as error:
        # Its compiled part fails in many ways beside another torch; none of them may end the job.
        detail = f"cannot be imported: {type(error).__name__}: {error}"
        return (*reports, PatchReport(name, applied=False, detail=detail))
    if patcher is None:
        return (*reports, PatchReport(name, applied=False, detail=f"has none of {', '.join(MODULES)}"))
    reports += _apply(name, patcher)
    return tuple(reports)


def _module() -> ModuleType | None:
    for path in MODULES:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("mx_driving"):
                raise
    return None


def _apply(name: str, module: ModuleType) -> Iterable[PatchReport]:
    groups = [getattr(module, group) for group in GROUPS if hasattr(module, group)]
    if hasattr(module, "Patcher") and groups:
        yield from _apply_groups(name, module.Patcher(), groups)
        if hasattr(module, "default_patcher"):
            detail = "left out: it patches mmcv and mmdet, and puts Python in front of torch.matmul and tensor indexing"
            yield PatchReport(f"{name} default_patcher", applied=False, detail=detail)
    elif hasattr(module, "default_patcher"):
        module.default_patcher.apply()
        yield PatchReport(f"{name} default_patcher", applied=True, detail="default_patcher.apply()")
    elif hasattr(module, "default_patcher_builder"):
        # Meant as a `with` block around training; held open for the rest of the process.
        patcher = module.default_patcher_builder.build()
        patcher.__enter__()
        _entered.append(patcher)
        yield PatchReport(f"{name} default_patcher_builder", applied=True, detail="default_patcher_builder.build()")
    else:
        known = ", ".join(sorted(key for key in vars(module) if "patch" in key.lower())) or "nothing"
        detail = f"unknown interface: {module.__name__} offers {known}"
        yield PatchReport(name, applied=False, detail=detail)


def _apply_groups(name: str, patcher: Any, groups: list[Any]) -> Iterable[PatchReport]:
    """Add the single patches of each group where the release lets one see them, else the group as a whole."""
    single: list[Any] = []
    for group in groups:
        if not callable(getattr(group, "patches", None)):
            patcher.add(group)
            continue
        for patch in group.patches(None):
            reason = next((why for start, why in LEFT_OUT.items() if patch.name.startswith(start)), "")
            if reason:
                yield PatchReport(f"{name} {patch.name}", applied=False, detail=f"left out: {reason}")
            else:
                single.append(patch)
    for patch in single:
        patcher.add(patch)
    patcher.apply()
    for patch in single:
        done = bool(patch.is_applied)
        detail = "applied" if done else "not applicable to the installed version of the library"
        yield PatchReport(f"{name} {patch.name}", applied=done, detail=detail)
    for group in groups:
        if not callable(getattr(group, "patches", None)):
            yield PatchReport(f"{name} {group.__name__}", applied=True, detail="Patcher().add(...).apply()")


def _spoof() -> Iterator[PatchReport]:
    """Say so if something else made torch_npu answer in the name of CUDA; it cannot be undone."""
    if SPOOF in sys.modules:
        detail = "imported by another package: torch.cuda now answers for the NPU, and libraries may choose CUDA code"
        yield PatchReport(SPOOF, applied=True, detail=detail)


@contextlib.contextmanager
def _without_spoof() -> Iterator[None]:
    """mx_driving imports `transfer_to_npu` for its own sake, which rewrites torch.cuda for the whole process."""
    if SPOOF in sys.modules:
        yield
        return
    package, _, attribute = SPOOF.rpartition(".")
    stand_in = sys.modules[SPOOF] = ModuleType(SPOOF, "Stands in while mx_driving is imported; does nothing.")
    try:
        yield
    finally:
        del sys.modules[SPOOF]
        parent = sys.modules.get(package)
        if parent is not None and getattr(parent, attribute, None) is stand_in:
            delattr(parent, attribute)
