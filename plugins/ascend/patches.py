"""mx_driving's patches of other libraries, through whichever of its interfaces is installed; each is reported.

Only those in `patch_table.py` are applied, and only to the code that they were read for.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Final

from vla_backend import PatchReport
from vla_backend.installed import distribution_version, package_folder
from vla_backend_ascend import patch_table

SPOOF: Final = "torch_npu.contrib.transfer_to_npu"
#: Where the patcher has lived, newest first.
MODULES: Final = ("mx_driving.patcher", "mx_driving.tools.patch.patcher", "mx_driving.tools.patch")
#: Groups of patches for the libraries used here, by class name; releases differ in which they have.
GROUPS: Final = ("TransformersNPU", "DiffusersNPU")
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
        yield _whole(name, "default_patcher", "default_patcher.apply()", module.default_patcher.apply)
    elif hasattr(module, "default_patcher_builder"):
        # Meant as a `with` block around training; held open for the rest of the process.
        patcher = module.default_patcher_builder.build()
        _entered.append(patcher)
        yield _whole(name, "default_patcher_builder", "default_patcher_builder.build()", patcher.__enter__)
    else:
        known = ", ".join(sorted(key for key in vars(module) if "patch" in key.lower())) or "nothing"
        detail = f"unknown interface: {module.__name__} offers {known}"
        yield PatchReport(name, applied=False, detail=detail)


def _apply_groups(name: str, patcher: Any, groups: list[Any]) -> Iterable[PatchReport]:
    """Add the single patches of each group that fit what is installed; a group that hides its patches as a whole."""
    single, hidden = [], []
    for group in groups:
        if not callable(getattr(group, "patches", None)):
            patcher.add(group)
            hidden.append(group.__name__)
            continue
        for patch in group.patches(None):
            if against := patch_table.objection(patch.name):
                yield PatchReport(f"{name} {patch.name}", applied=False, detail=against)
            else:
                single.append((patch, _label(patch.name)))
                patcher.add(patch)
    if hidden:
        yield _whole(name, ", ".join(hidden), "Patcher().add(...).apply()", patcher.apply)
    else:
        patcher.apply()
    for patch, before in single:
        done = bool(patch.is_applied)
        after = _label(patch.name)
        detail = f"{before} is now {after}" if done else "its own check declines the installed version of the library"
        yield PatchReport(f"{name} {patch.name}", applied=done, detail=detail)


def _whole(name: str, what: str, how: str, apply: Callable[[], Any]) -> PatchReport:
    """Apply patches that a release offers only as a whole, and say which functions known here are others afterwards."""
    before = {patch.target: _label(patch.target) for patch in patch_table.PATCHES}
    apply()
    changed = [target for target, label in before.items() if _label(target) != label]
    effect = f"replaced {', '.join(changed)}" if changed else "nothing that is known here was replaced"
    return PatchReport(f"{name} {what}", applied=True, detail=f"{how}, unread as a whole: {effect}")


def _label(target: str) -> str:
    """Where the function at `target` comes from; only among modules that are loaded already."""
    try:
        found = patch_table.resolve(target, loaded_only=True)
    except (ImportError, AttributeError):
        return "not loaded"
    return f"{getattr(found, '__module__', '?')}.{getattr(found, '__qualname__', found)}"


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
