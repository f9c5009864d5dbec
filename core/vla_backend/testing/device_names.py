"""Finding names of devices in the source of a package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Device types of torch and of its extensions; "cpu" and "meta" are everywhere.
NAMES: Final = (
    "cuda",
    "npu",
    "xpu",
    "mps",
    "hpu",
    "mlu",
    "musa",
    "gcu",
    "sdaa",
    "maia",
    "mtia",
    "xla",
    "privateuseone",
)
_NAME: Final = re.compile(rf"({'|'.join(NAMES)})(:\d+)?")
_VENDOR_PACKAGE: Final = re.compile(rf"torch[._]({'|'.join(NAMES)})(\..*)?|habana_frameworks(\..*)?")
_OTHER_ATTRIBUTES: Final = frozenset(f"is_{name}" for name in NAMES)


def is_device_name(text: str) -> bool:
    """Whether `text` is a device string of one kind of chip, as "xpu" or "xpu:0"."""
    return _NAME.fullmatch(text) is not None


def in_package(folder: Path) -> Iterator[str]:
    """One sentence per place in the Python files below `folder` that names a device."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        shown = path.relative_to(folder.parent)
        for node in ast.walk(tree):
            what = _named(node)
            if what:
                yield f"{shown}:{getattr(node, 'lineno', 0)}: names a device: {what}; ask the backend instead"


def _named(node: ast.AST) -> str:
    """What in `node` names a device, "" if nothing does."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_device_name(node.value):
        return repr(node.value)
    if isinstance(node, ast.Attribute) and (node.attr in NAMES or node.attr in _OTHER_ATTRIBUTES):
        return f".{node.attr}"
    if isinstance(node, ast.Import):
        return next((alias.name for alias in node.names if _VENDOR_PACKAGE.fullmatch(alias.name)), "")
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        if _VENDOR_PACKAGE.fullmatch(node.module):
            return node.module
        if node.module == "torch":
            return next((f"torch.{alias.name}" for alias in node.names if alias.name in NAMES), "")
    return ""
