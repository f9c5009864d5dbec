"""The layer rule: an import only points up, and the engine and the models know no chip by name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: Folder -> product packages it may import.
ALLOWED = {
    "core/vla_backend": {"vla_backend"},
    "core/vla_train": {"vla_backend", "vla_train"},
    "plugins/cpu": {"vla_backend", "vla_backend_cpu"},
    "plugins/cuda": {"vla_backend", "vla_backend_cuda"},
    "plugins/ascend": {"vla_backend", "vla_backend_ascend"},
    "models/dit4dit": {"vla_backend", "vla_train", "vla_dit4dit"},
    "models/groot": {"vla_backend", "vla_train", "vla_groot"},
}
DEVICE_NAME = re.compile(r"\b(cuda|npu|nccl|hccl|torch_npu)\b", re.I)


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_point_up(folder: str) -> None:
    assert sources(folder)
    for path in sources(folder):
        product = {name for name in imports(ast.parse(path.read_text())) if name.startswith("vla_")}
        assert product <= ALLOWED[folder], f"{path.relative_to(ROOT)} imports {product - ALLOWED[folder]}"


@pytest.mark.parametrize("folder", ["core/vla_train", "models"])
def test_no_device_name_in_engine_and_models(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources(folder)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DEVICE_NAME.search(line)
    ]
    assert not found, "ask the backend instead:\n" + "\n".join(found)


def test_device_names_would_be_found() -> None:
    assert DEVICE_NAME.search('torch.autocast("cuda")')
    assert DEVICE_NAME.search("x.npu()")
    assert not DEVICE_NAME.search("input_type = 1")


@pytest.mark.parametrize("folder", ["core/vla_backend", "plugins"])
def test_contract_and_plugins_import_nothing_heavy_at_the_top(folder: str) -> None:
    for path in sources(folder):
        if "sim" in path.relative_to(ROOT).parts[-2]:
            continue
        top: set[str] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                top |= imports(node)
        heavy = top & {"torch", "torch_npu", "numpy", "deepspeed", "accelerate", "safetensors", "mx_driving"}
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy} at the top"
