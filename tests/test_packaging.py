"""What `pyproject.toml` promises holds on disk."""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()


def test_every_package_folder_is_listed() -> None:
    listed = set(re.findall(r'"(vla_[\w.]+)",', PYPROJECT.split("packages = [")[1].split("]")[0]))
    folders = dict(re.findall(r'^(vla_\w+) = "([\w/]+)"$', PYPROJECT.split("package-dir]")[1], re.M))
    on_disk = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for package, folder in folders.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert listed == on_disk


def test_entry_points_load() -> None:
    for group in ("vla_backend.plugins", "vla_train.models", "vla_train.environments", "console_scripts"):
        for entry in metadata.distribution("vla-backend").entry_points.select(group=group):
            assert entry.load() is not None


def test_the_repository_speaks_of_the_product_only() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    private = re.compile(r"(?<![\w.])/(work|farm|root|home)/|\.\./shared|files\.pythonhosted")
    for name in files:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".sh", ".json"} and path.exists():
            if path == Path(__file__):
                continue
            assert not private.search(path.read_text(errors="replace")), f"{name} names a path or host of one machine"
