"""Another chip's torch extension, installed beside the backend in use, is out of the way of other libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTENSION = """
[torch.backends]
foreign_npu = foreign_npu:_autoload
"""
#: What libraries do: look for the extension, import it where it is found, and use its kernels from then on.
ASK = """
import importlib.util, sys
from vla_backend import activate
from vla_backend.installed import package_folder
{before}
backend = activate({name!r}, check_available=False)
backend.load_stack()
print("found" if importlib.util.find_spec("foreign_npu") else "absent")
try:
    import foreign_npu
except ModuleNotFoundError:
    print("not importable")
print("installed" if package_folder("foreign_npu") else "not installed")
{after}
"""


@pytest.fixture
def ask(tmp_path: Path):
    (tmp_path / "foreign_npu").mkdir()
    (tmp_path / "foreign_npu" / "__init__.py").write_text("def _autoload(): pass\n")
    info = tmp_path / "foreign_npu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign_npu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(EXTENSION)

    def ask(name: str, before: str = "", after: str = "") -> list[str]:
        program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + ASK.format(
            name=name, before=before, after=after
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]

    return ask


def test_hidden_from_libraries_yet_known_to_be_installed(ask) -> None:
    assert ask("cpu") == ["absent", "not importable", "installed"]


def test_what_the_process_already_uses_stays(ask) -> None:
    assert ask("cpu", before="import foreign_npu") == ["found", "installed"]


def test_the_next_backend_of_a_process_sees_it_again(ask) -> None:
    after = """
from vla_backend import extensions
extensions.reveal()
import foreign_npu
print("revealed")
"""
    assert ask("cpu", after=after)[-1] == "revealed"


def test_the_backends_own_extension_is_not_hidden(ask) -> None:
    own = """
from vla_backend_cpu import launch
hook = launch.load_stack
from vla_backend import hookimpl
@hookimpl
def load_stack():
    import torch, foreign_npu
    return ("torch", "foreign_npu")
launch.load_stack = load_stack
"""
    assert ask("cpu", before=own) == ["found", "installed"]
